-- Allow-lists: a set of user ids for each activity, the version of each in one hash (the field `version` holds the last
-- one given to any), and the last changes in one stream, under the id VERSION-0. All in the slot of shard 0, and of no
-- shard: they are read and changed while shards are recovered.

-- allow_change: KEYS hash, log, set. ARGV how many changes are kept, activity, '+' or '-', users with spaces between,
-- then each user. Returns for how many that was a change.
local function allow_change(keys, args)
  bind()
  local activity, sign = args[2], args[3]
  local kept = redis.call('HMGET', keys[1], 'version', activity)
  local newest = redis.call('XREVRANGE', keys[2], '+', '-', 'COUNT', 1)[1]
  local changed = redis.call(sign == '+' and 'SADD' or 'SREM', keys[3], unpack(args, 5))
  if changed == 0 then
    return 0
  end
  local time = redis.call('TIME')
  local now = time[1] * 1000 + floor(time[2] / 1000)
  local last = math.max(tonumber(kept[1]) or 0, newest and parse_id(newest[1]) or 0)
  local version, before = math.max(now, last + 1), kept[2] or '0'
  redis.call('XADD', keys[2], 'MAXLEN', args[1], version .. '-0', 'a', activity, 'b', before, 's', sign,
    'n', redis.call('SCARD', keys[3]), 'u', args[4])
  redis.call('HSET', keys[1], 'version', version, activity, version)
  return changed
end

-- allow_states: KEYS hash, then the set of each activity. ARGV the activities. Returns version and size of each.
local function allow_states(keys, args)
  local states = {}
  for i = 1, #args do
    states[#states + 1] = redis.call('HGET', keys[1], args[i]) or '0'
    states[#states + 1] = redis.call('SCARD', keys[i + 1])
  end
  return states
end

redis.register_function{function_name = 'rg1_allow_change', callback = allow_change}
redis.register_function{function_name = 'rg1_allow_states', callback = allow_states, flags = {'no-writes'}}
