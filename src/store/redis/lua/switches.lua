-- Switches, of the whole installation: they need no shard to be open, so that a door can be closed while one is
-- recovered. A switch is a field of one hash, `VERSION AT RECORD` (the record is the caller's, JSON); the field
-- `version` holds the last version given. Every change is an entry of one stream as well, under the id VERSION-0.

-- The last version that was ever given here. A hash or a stream that was lost alone does not turn it back.
local function last_version(keys)
  local last = tonumber(redis.call('HGET', keys[1], 'version')) or 0
  local newest = redis.call('XREVRANGE', keys[2], '+', '-', 'COUNT', 1)[1]
  return math.max(last, newest and parse_id(newest[1]) or 0)
end

-- Versions and times are Unix milliseconds, which `..` writes in full.
local function put_switch(keys, kept, name, version, text)
  redis.call('XADD', keys[2], 'MAXLEN', kept, version .. '-0', 'n', name, 'r', text)
  redis.call('HSET', keys[1], 'version', version, name, text)
end

-- switch_set: KEYS hash, log. ARGV how many changes are kept, name, record. Returns the version.
local function switch_set(keys, args)
  bind()
  local time = redis.call('TIME')
  local now = time[1] * 1000 + floor(time[2] / 1000)
  local version = math.max(now, last_version(keys) + 1)
  put_switch(keys, args[1], args[2], version, version .. ' ' .. now .. ' ' .. args[3])
  return version .. ''
end

-- switch_restore: puts back what this Redis has lost. KEYS hash, log. ARGV how many changes are kept, then name,
-- version, text of each, oldest first. What stands here newer, or cannot be read, stays. Returns how many were put back.
local function switch_restore(keys, args)
  bind()
  local put, last = 0, last_version(keys)
  for i = 2, #args, 3 do
    local name, version, text = args[i], tonumber(args[i + 1]), args[i + 2]
    local here = redis.call('HGET', keys[1], name)
    local here_version = here and tonumber(string.match(here, '^(%d+) '))
    if not here or (here_version and here_version < version) then
      put = put + 1
      if version > last then
        last = version
        put_switch(keys, args[1], name, version, text)
      else
        redis.call('HSET', keys[1], name, text)
      end
    end
  end
  return put
end

-- Also while Redis is out of memory: that is when somebody wants a door closed.
redis.register_function{function_name = 'rg1_switch_set', callback = switch_set, flags = {'allow-oom'}}
redis.register_function{function_name = 'rg1_switch_restore', callback = switch_restore, flags = {'allow-oom'}}
