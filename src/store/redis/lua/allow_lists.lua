-- Allow-lists: a set of user ids for each activity, the version of each in one hash (the field `version` holds the last
-- one given to any), and the last changes in one stream, under the id VERSION-0. All in the slot of shard 0, and of no
-- shard: they are read and changed while shards are recovered.

-- The version of the next change of a list, and of the last one before it. Reads what will be written, which checks the
-- types.
local function allow_next(keys, activity)
  local kept = redis.call('HMGET', keys[1], 'version', activity)
  local newest = redis.call('XREVRANGE', keys[2], '+', '-', 'COUNT', 1)[1]
  local last = math.max(tonumber(kept[1]) or 0, newest and parse_id(newest[1]) or 0)
  return math.max(now_ms(), last + 1), kept[2] or '0'
end

local function allow_log(keys, kept, version, activity, before, sign, users, what)
  redis.call('XADD', keys[2], 'MAXLEN', kept, version .. '-0', 'a', activity, 'b', before, 's', sign, 'n', users, 'u', what)
end

-- allow_change: KEYS hash, log, set. ARGV how many changes are kept, activity, '+' or '-', users with spaces between,
-- then each user. Returns for how many that was a change.
local function allow_change(keys, args)
  bind()
  local activity, sign = args[2], args[3]
  local version, before = allow_next(keys, activity)
  local changed = redis.call(sign == '+' and 'SADD' or 'SREM', keys[3], unpack(args, 5))
  if changed == 0 then
    return 0
  end
  allow_log(keys, args[1], version, activity, before, sign, redis.call('SCARD', keys[3]), args[4])
  redis.call('HSET', keys[1], 'version', version, activity, version)
  return changed
end

-- allow_put: a whole list, staged beside it, in the place of one that still stands as the caller has seen it. What came in
-- parts would be taken for the whole by whoever looks in between, and those in the other parts be told for good that they
-- are not on it. KEYS hash, log, set, staged set. ARGV how many changes are kept, activity, version and size of the list
-- as it was seen, size of the staged one, where it comes from. Returns the version; 0: nothing was done.
local function allow_put(keys, args)
  bind()
  local activity = args[2]
  local version, before = allow_next(keys, activity)
  local is_seen = before == args[3] and redis.call('SCARD', keys[3]) == tonumber(args[4])
  -- What was staged may have expired, or been lost with all the rest.
  if not is_seen or redis.call('SCARD', keys[4]) ~= tonumber(args[5]) then
    return 0
  end
  allow_log(keys, args[1], version, activity, before, '=', args[5], args[6])
  switch(keys[4], keys[3], args[5])
  redis.call('HSET', keys[1], 'version', version, activity, version)
  return version
end

-- allow_states: KEYS hash, then the set of each activity. ARGV the activities. Returns version and size of each; instead
-- of the size, what there is that is no set.
local function allow_states(keys, args)
  local states = {}
  for i = 1, #args do
    local users = redis.pcall('SCARD', keys[i + 1])
    states[#states + 1] = redis.call('HGET', keys[1], args[i]) or '0'
    states[#states + 1] = type(users) == 'number' and users or redis.call('TYPE', keys[i + 1]).ok
  end
  return states
end

redis.register_function{function_name = 'rg1_allow_change', callback = allow_change}
redis.register_function{function_name = 'rg1_allow_put', callback = allow_put}
redis.register_function{function_name = 'rg1_allow_states', callback = allow_states, flags = {'no-writes'}}
