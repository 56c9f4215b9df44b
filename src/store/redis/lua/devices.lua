-- Which users were seen on a device, and which devices a user was seen on: a sorted set each, of members by when they
-- were seen last (Unix ms). They belong to no shard though they carry its tag; recoveries do not touch them. A set
-- holds at most one member more than may be, the newest, and goes when nothing was added for a window.

-- seen: KEYS one set for each thing seen. ARGV window in ms, then of each set how many members may be, and the member.
-- Returns how many members each has now.
local function seen(keys, args)
  bind()
  local time = redis.call('TIME')
  local now, window = time[1] * 1000 + floor(time[2] / 1000), args[1]
  local counts = {}
  for i = 1, #keys do
    local key, max, member = keys[i], tonumber(args[2 * i]), args[2 * i + 1]
    redis.call('ZADD', key, now .. '', member)
    redis.call('PEXPIRE', key, window)
    local count = redis.call('ZCARD', key)
    -- Only where it matters: what is too old is still there while there are few.
    if count > max then
      count = count - redis.call('ZREMRANGEBYSCORE', key, '-inf', '(' .. (now - window))
      if count > max + 1 then
        count = count - redis.call('ZREMRANGEBYRANK', key, 0, count - max - 2)
      end
    end
    counts[i] = count
  end
  return counts
end

redis.register_function('rg1_seen', seen)
