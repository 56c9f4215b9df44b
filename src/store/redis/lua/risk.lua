-- Risk lists, of the whole installation, in no shard's care. An entry is a field of one hash, named by its subject:
-- `AT UNTIL EFFECT RECORD` (the record is the caller's, JSON). Subjects hold a colon; the fields `version` (the last one
-- given) and `born` (the first one since the hash is there) do not. A sorted set has the subjects whose time will pass,
-- by that time. Every step is an entry of one stream under the id VERSION-0: `p` the version before it, `c` its changes,
-- a line each: `EFFECT UNTIL SUBJECT`, or `- 0 SUBJECT` for one taken off; `f`, where there are any, for each line whether
-- it is a flag, 1 or 0.

-- The next version and the time now, in Unix milliseconds, which `..` writes in full; and the last version that was ever
-- given here. Reads everything that will be written, which checks the types.
local function risk_next(keys)
  bind()
  local known = redis.call('HGET', keys[1], 'version')
  local newest = redis.call('XREVRANGE', keys[2], '+', '-', 'COUNT', 1)[1]
  redis.call('ZCARD', keys[3])
  local last = math.max(tonumber(known) or 0, newest and parse_id(newest[1]) or 0)
  local time = redis.call('TIME')
  local now = time[1] * 1000 + floor(time[2] / 1000)
  return math.max(now, last + 1), now, last, not known
end

-- How the record of a flag begins: with who lists it.
local FLAG = '{"who":"gateway '

local function risk_log(keys, kept, version, last, lines, is_new, flags)
  -- A hash that was lost alone has no past, whatever the stream knows of one: who follows has to notice.
  local before = is_new and 0 or last
  local text = concat(lines, '\n')
  if flags and find(flags, '1', 1, true) then
    redis.call('XADD', keys[2], 'MAXLEN', kept, version .. '-0', 'p', before, 'c', text, 'f', flags)
  else
    redis.call('XADD', keys[2], 'MAXLEN', kept, version .. '-0', 'p', before, 'c', text)
  end
  if is_new then
    redis.call('HSET', keys[1], 'born', version)
  end
  redis.call('HSET', keys[1], 'version', version)
end

-- Forgets some of those whose time has passed, more than come in: what is listed for a time does not pile up.
local function risk_forget(keys, now, some)
  local passed = redis.call('ZRANGEBYSCORE', keys[3], '-inf', now, 'LIMIT', 0, some)
  if #passed > 0 then
    redis.call('HDEL', keys[1], unpack(passed))
    redis.call('ZREM', keys[3], unpack(passed))
  end
end

-- KEYS hash, stream, sorted set. ARGV how many steps are kept, then subject, until, effect, record, and others up to `each`,
-- of each entry. `may` says of an entry, by where its arguments begin, whether it is to be listed.
-- Returns version and how many were listed.
local function risk_put(keys, args, each, may)
  local version, now, last, is_new = risk_next(keys)
  local lines, flags, fields, passing, staying = {}, {}, {}, {}, {}
  for i = 2, #args, each do
    local subject, until_ms, effect, record = args[i], args[i + 1], args[i + 2], args[i + 3]
    if may(i, now) then
      lines[#lines + 1] = effect .. ' ' .. until_ms .. ' ' .. subject
      flags[#lines] = sub(record, 1, #FLAG) == FLAG and '1' or '0'
      fields[#fields + 1] = subject
      fields[#fields + 1] = now .. ' ' .. until_ms .. ' ' .. effect .. ' ' .. record
      if until_ms == '0' then
        staying[#staying + 1] = subject
      else
        passing[#passing + 1] = until_ms
        passing[#passing + 1] = subject
      end
    end
  end
  if #lines == 0 then
    return last .. ' 0'
  end
  risk_log(keys, args[1], version, last, lines, is_new, concat(flags))
  risk_forget(keys, now, 2 * #lines + 10)
  hset(keys[1], fields)
  if #staying > 0 then
    redis.call('ZREM', keys[3], unpack(staying))
  end
  if #passing > 0 then
    redis.call('ZADD', keys[3], unpack(passing))
  end
  return version .. ' ' .. #lines
end

local function risk_add(keys, args)
  return risk_put(keys, args, 4, function()
    return true
  end)
end

-- Puts back what this Redis has lost; what stands here stays.
local function risk_restore(keys, args)
  return risk_put(keys, args, 4, function(i)
    return redis.call('HEXISTS', keys[1], args[i]) == 0
  end)
end

-- Lists flags; with a fifth argument of each entry: how what the caller has seen there begins (`AT UNTIL EFFECT `), or
-- nothing. [An operator lists somebody, or takes him off, after a gateway has looked: its flag would undo that.] Returns for
-- each entry 1 or 0: whether it stands here then.
local function risk_flag(keys, args)
  local stands = {}
  risk_put(keys, args, 5, function(i, now)
    local here, seen = redis.call('HGET', keys[1], args[i]), args[i + 4]
    local may
    if here then
      may = seen ~= '' and sub(here, 1, #seen) == seen
      -- A copy of this call has come before.
      local ours = string.match(here, '^%d+ (.*)$') == args[i + 1] .. ' ' .. args[i + 2] .. ' ' .. args[i + 3]
      stands[#stands + 1] = (may or ours) and '1' or '0'
      return may and not ours
    end
    -- Forgotten, not taken off.
    local until_ms = tonumber(string.match(seen, '^%d+ (%d+) '))
    may = seen == '' or until_ms and until_ms > 0 and until_ms <= now
    stands[#stands + 1] = may and '1' or '0'
    return may
  end)
  return concat(stands)
end

-- KEYS as above. ARGV how many steps are kept, then subjects. Returns version and how many were listed.
local function risk_remove(keys, args)
  local version, _, last, is_new = risk_next(keys)
  local lines, gone = {}, {}
  for i = 2, #args do
    if redis.call('HEXISTS', keys[1], args[i]) == 1 then
      lines[#lines + 1] = '- 0 ' .. args[i]
      gone[#gone + 1] = args[i]
    end
  end
  if #gone == 0 then
    return last .. ' 0'
  end
  risk_log(keys, args[1], version, last, lines, is_new)
  local removed = redis.call('HDEL', keys[1], unpack(gone))
  redis.call('ZREM', keys[3], unpack(gone))
  return version .. ' ' .. removed
end

redis.register_function{function_name = 'rg1_risk_add', callback = risk_add}
redis.register_function{function_name = 'rg1_risk_restore', callback = risk_restore}
redis.register_function{function_name = 'rg1_risk_flag', callback = risk_flag}
-- It takes no memory to speak of.
redis.register_function{function_name = 'rg1_risk_remove', callback = risk_remove, flags = {'allow-oom'}}
