-- What the leader of a recovery does (rule 11).

-- state: what a shard says of itself, open or not. KEYS meta. Returns {own epoch, {field, value, ...}}.
local function state(keys)
  return {own_epoch(), redis.call('HGETALL', keys[1])}
end

-- begins a generation: its first entry, seq 0, tells readers at older positions to start anew, also on a shard where
-- nothing else happens, and is never trimmed while it is the newest.
local function begin_generation(feed, gen)
  append(feed, gen, 0, BEGUN, 0, pack('>I2', 0))
end

-- adopt: an open shard takes over the new generation and tells its counters at this moment.
-- KEYS meta, feed, then per activity stock. ARGV epoch, generation, then the activities' ids.
-- Returns {'D', counters}, {'A', ids...} when other activities are here, {'X'} when it is closed, of another epoch
-- or of a later generation.
local function adopt(keys, args)
  local gen, ids = args[2], {}
  for i = 3, #args do
    ids[i - 2] = args[i]
  end
  local meta = redis.call('HMGET', keys[1], 'epoch', 'phase', 'gen')
  if not is_open(meta) or meta[1] ~= args[1] or tonumber(meta[3]) > tonumber(gen) then
    return {'X'}
  end
  local same, here = same_activities(redis.call('HGETALL', keys[1]), ids)
  if not same then
    return {'A', here}
  end
  local packed, problem = counters_of(keys, 3, ids)
  if problem then
    return problem
  end
  if meta[3] ~= gen then
    begin_generation(keys[2], gen)
    redis.call('HSET', keys[1], 'gen', gen, 'seq', 0)
  end
  return {'D', packed}
end

-- shut: closes an open shard of a generation below the given one, whatever it holds: something that it sells was taken over
-- from it, or given back to it, since. KEYS meta. ARGV epoch, generation. Returns {'D'}; {'X'} when it is not so.
local function shut(keys, args)
  local meta = redis.call('HMGET', keys[1], 'epoch', 'phase', 'gen')
  if is_open(meta) and meta[1] == args[1] and tonumber(meta[3]) < tonumber(args[2]) then
    redis.call('HSET', keys[1], 'phase', 'closed')
    return {'D'}
  end
  return {'X'}
end

-- fence: keeps a closed shard closed to every recovery before this one. Their leaders, superseded between reading and
-- writing, would open it with what they had read, while a later one reads something else.
-- KEYS meta. ARGV epoch, generation. Returns {'D'}; {'X'} when it is open, of another epoch, or of a later generation.
local function fence(keys, args)
  local gen, meta = args[2], redis.call('HMGET', keys[1], 'epoch', 'phase', 'gen', 'fence')
  local is_later = math.max(tonumber(meta[3] or 0), tonumber(meta[4] or 0)) > tonumber(gen)
  if is_open(meta) or own_epoch() ~= args[1] or is_later then
    return {'X'}
  end
  redis.call('HSET', keys[1], 'phase', 'closed', 'fence', gen)
  return {'D'}
end

-- Whether a staged hash is complete.
local function is_staged(key, length)
  return redis.call('HLEN', key) == tonumber(length)
end

local function switch(staged, live, length)
  redis.call('UNLINK', live)
  if length ~= '0' then
    redis.call('PERSIST', staged)
    redis.call('RENAME', staged, live)
  end
end

-- rebuild: opens a closed shard with what was staged beside it. Decides everything itself.
-- KEYS meta, feed, then per activity stock, buyers, staged stock, staged buyers, then per tombstone stock, buyers.
-- ARGV epoch, generation, number of activities, number of tombstones, per activity its id, phase and the fields of
-- its two staged hashes, per tombstone its id, then the bodies of the events to append (marks that writers may not
-- have seen).
-- Returns {'D'}; {'E', epoch} of another one; {'L', generation} of a later recovery, done or
-- begun; {'O', generation} open.
local function rebuild(keys, args)
  local gen, live, dead = args[2], tonumber(args[3]), tonumber(args[4])
  local meta = redis.call('HMGET', keys[1], 'epoch', 'phase', 'gen', 'fence')
  local latest = math.max(tonumber(meta[3] or 0), tonumber(meta[4] or 0))
  if own_epoch() ~= args[1] then
    return {'E', own_epoch()}
  elseif latest > tonumber(gen) then
    return {'L', format('%.0f', latest)}
  elseif is_open(meta) then
    return {'O', meta[3]}
  end
  if redis.call('EXISTS', keys[2]) == 1 then
    for _, info in ipairs({redis.call('XINFO', 'STREAM', keys[2])}) do
      for at = 1, #info, 2 do
        if info[at] == 'last-generated-id' then
          local newest = parse_id(info[at + 1])
          if newest >= tonumber(gen) then
            return {'L', format('%.0f', newest)}
          end
        end
      end
    end
  end
  local named = {}
  for i = 1, live do
    local at, key = 4 + 4 * (i - 1), 2 + 4 * (i - 1)
    named['a:' .. args[at + 1]] = args[at + 2]
    if not is_staged(keys[key + 3], args[at + 3]) or not is_staged(keys[key + 4], args[at + 4]) then
      return redis.error_reply('UNSTAGED activity ' .. args[at + 1] .. ' is not completely staged; stage it again')
    end
  end
  for i = 1, dead do
    named['a:' .. args[4 + 4 * live + i]] = 'archived'
  end
  local known = redis.call('HKEYS', keys[1])
  for _, field in ipairs(known) do
    if sub(field, 1, 2) == 'a:' and not named[field] then
      return redis.error_reply('UNSTAGED activity ' .. sub(field, 3) .. ' is here, but not in what was staged')
    end
  end
  begin_generation(keys[2], gen)
  local seq = 0
  for i = 5 + 4 * live + dead, #args do
    seq = seq + 1
    append(keys[2], gen, seq, MARKED, 1, args[i])
  end
  for i = 1, live do
    local at, key = 4 + 4 * (i - 1), 2 + 4 * (i - 1)
    switch(keys[key + 3], keys[key + 1], args[at + 3])
    switch(keys[key + 4], keys[key + 2], args[at + 4])
  end
  for i = 1, dead do
    local key = 2 + 4 * live + 2 * (i - 1)
    redis.call('UNLINK', keys[key + 1], keys[key + 2])
  end
  local fields = {'epoch', args[1], 'gen', gen, 'seq', seq, 'phase', 'open'}
  for field, phase in pairs(named) do
    fields[#fields + 1], fields[#fields + 2] = field, phase
  end
  hset(keys[1], fields)
  return {'D'}
end

redis.register_function{function_name = 'rg1_state', callback = state, flags = {'no-writes'}}
redis.register_function('rg1_adopt', adopt)
redis.register_function('rg1_shut', shut)
redis.register_function('rg1_fence', fence)
redis.register_function('rg1_rebuild', rebuild)
