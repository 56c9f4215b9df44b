-- Switches, of the whole installation: they need no shard to be open, so that a door can be closed while one is
-- recovered. A switch is a field of one hash, `VERSION AT RECORD` (the record is the caller's, JSON, with the life of the
-- Redis in which it was set put in front); the field `version` holds the last version given. Every change is an entry of
-- one stream as well, under the id VERSION-0, with the id that its caller gave it.

-- Versions are Unix milliseconds, or count on from there. From here on (the year 4821) it is no version but what
-- somebody's hand has written: counted on from, it would soon be more than `..` writes in full, and no id of a stream.
local VERSION_MAX = 90000000000000

local function version_of(text)
  local version = text and tonumber(string.match(text, '^%d+$') or '')
  return version and version < VERSION_MAX and version or nil
end

-- The last version that was ever given here. A hash or a stream that was lost alone does not turn it back; where the
-- field for it holds something else, the switches tell. A stream that takes no further version is given up: it is only
-- for those who follow, and they read the hash as well.
local function last_version(keys)
  local text = redis.call('HGET', keys[1], 'version')
  local last = version_of(text)
  if text and not last then
    for _, kept in ipairs(redis.call('HVALS', keys[1])) do
      last = math.max(last or 0, version_of(string.match(kept, '^(%d+) ')) or 0)
    end
  end
  last = last or 0
  local newest = redis.call('XREVRANGE', keys[2], '+', '-', 'COUNT', 1)[1]
  if newest then
    local version = version_of(string.match(newest[1], '^(%d+)%-'))
    if not version then
      redis.call('DEL', keys[2])
    end
    last = math.max(last, version or 0)
  end
  return last
end

-- `id` tells a change from every other; empty where nobody may ask for it again.
local function put_switch(keys, kept, name, version, text, id)
  redis.call('XADD', keys[2], 'MAXLEN', kept, version .. '-0', 'n', name, 'r', text, 'i', id)
  redis.call('HSET', keys[1], 'version', version, name, text)
end

-- switch_set: KEYS hash, log. ARGV how many changes are kept, name, record, version of the switch that the caller has
-- seen (0: none), id. Returns the version; `CHANGED` when another was set since the caller looked, and nothing was done.
-- [The copy of a set whose answer was lost arrives after another's newer one: a door that was closed opens again.] A
-- repetition is told the version that the first copy was given.
local function switch_set(keys, args)
  local life = own_epoch()
  local here = redis.call('HGET', keys[1], args[2])
  if (here and string.match(here, '^(%d+) ') or '0') ~= args[4] then
    for _, entry in ipairs(redis.call('XREVRANGE', keys[2], '+', '-')) do
      if entry[2][6] == args[5] then
        return string.match(entry[1], '^%d+')
      end
    end
    return 'CHANGED'
  end
  local time = redis.call('TIME')
  local now = time[1] * 1000 + floor(time[2] / 1000)
  local version = math.max(now, last_version(keys) + 1)
  local text = version .. ' ' .. now .. ' {"life":"' .. life .. '",' .. sub(args[3], 2)
  put_switch(keys, args[1], args[2], version, text, args[5])
  return version .. ''
end

-- switch_restore: puts back what this Redis has lost. KEYS hash, log. ARGV how many changes are kept, then name,
-- version, text of each, oldest first. What stands here newer, or cannot be read, stays. So does what was set in this
-- life of Redis: whoever was told of a greater version was told in an earlier one, from which it was lost, and by a clock
-- that was ahead of this one; it is given a version above that, so that everybody can see. Returns how many were put back.
local function switch_restore(keys, args)
  local life = own_epoch()
  local put, last = 0, last_version(keys)
  for i = 2, #args, 3 do
    local name, version, text = args[i], version_of(args[i + 1]), args[i + 2]
    local here = redis.call('HGET', keys[1], name)
    local here_version = here and version_of(string.match(here, '^(%d+) '))
    local is_older = version and (not here or here_version and here_version < version)
    if is_older and here and string.match(here, '^%d+ %d+ {"life":"([^"]*)"') == life then
      last = math.max(last, version) + 1
      put_switch(keys, args[1], name, last, last .. string.match(here, '^%d+(.*)$'), '')
    elseif is_older then
      put = put + 1
      if version > last then
        last = version
        put_switch(keys, args[1], name, version, text, '')
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
