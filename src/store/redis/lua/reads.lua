-- What is read of a shard. Every piece is guarded: a plain scan of a shard that came back older would replace what a
-- gateway knew (rule 6).

-- Whether the activities named are those the shard has keys of; otherwise the list of those it has.
local function same_activities(fields, named)
  local here, n = {}, 0
  for i = 1, #fields, 2 do
    local id = string.match(fields[i], '^a:(%d+)$')
    if id and fields[i + 1] ~= 'archived' then
      n = n + 1
      here[n] = id
    end
  end
  local known = {}
  for _, id in ipairs(named) do
    known[id] = true
  end
  local same = n == #named
  for i = 1, n do
    same = same and known[here[i]]
  end
  return same, here
end

-- Every activity's counters. `keys` from `first` on are their stock hashes.
local function counters_of(keys, first, ids)
  local groups = {}
  for i, id in ipairs(ids) do
    local packed, problem = all_counters(keys[first + i - 1], id)
    if not packed then
      return nil, problem
    end
    groups[i] = packed
  end
  return pack('>I2', #groups) .. concat(groups)
end

-- guard: whether the shard serves, and its generation. KEYS meta. Returns {'D' or 'R', generation}.
local function guard(keys)
  local meta = redis.call('HMGET', keys[1], 'epoch', 'phase', 'gen')
  return {is_open(meta) and 'D' or 'R', meta[3] or '0'}
end

-- counters: the first piece of a snapshot. KEYS meta, then per activity stock. ARGV the activities' ids.
-- Returns {'D', generation, epoch, seq, counters}, {'A', ids...} when other activities are here, or {'R'}.
local function counters(keys, args)
  local meta = redis.call('HMGET', keys[1], 'epoch', 'phase', 'gen', 'seq')
  if not is_open(meta) then
    return {'R'}
  end
  local same, here = same_activities(redis.call('HGETALL', keys[1]), args)
  if not same then
    return {'A', here}
  end
  local packed, problem = counters_of(keys, 2, args)
  return problem or {'D', meta[3], meta[1], meta[4], packed}
end

-- marks: some of an activity's marks. KEYS meta, buyers. ARGV generation, epoch, cursor, how many.
-- Returns {'D', next cursor, marks (user 8, mark 22)}, or {'R'} when it is not the same any more: start again.
local function marks(keys, args)
  local meta = redis.call('HMGET', keys[1], 'epoch', 'phase', 'gen')
  if not is_open(meta) or meta[3] ~= args[1] or meta[1] ~= args[2] then
    return {'R'}
  end
  local page = redis.call('HSCAN', keys[2], args[3], 'COUNT', args[4])
  local parts, some = {}, page[2]
  for i = 1, #some, 2 do
    local user, mark = some[i], some[i + 1]
    if #user ~= 8 or (#mark ~= 14 and #mark ~= 22) then
      return corrupt(keys[2], 'a mark of ' .. #user .. ' + ' .. #mark .. ' bytes')
    end
    parts[i], parts[i + 1] = user, long_mark(mark)
  end
  return {'D', page[1], concat(parts)}
end

-- tail: events of a generation after a seq. KEYS meta, feed. ARGV generation, epoch, seq, how many.
-- Returns {'D', the shard's seq, id, body, id, body...}, or {'R'}.
local function tail(keys, args)
  local meta = redis.call('HMGET', keys[1], 'epoch', 'phase', 'gen', 'seq')
  if not is_open(meta) or meta[3] ~= args[1] or meta[1] ~= args[2] then
    return {'R'}
  end
  -- Not beyond the shard's seq: what stands there is somebody else's.
  local entries = redis.call('XRANGE', keys[2], '(' .. args[1] .. '-' .. args[3], args[1] .. '-' .. meta[4],
    'COUNT', args[4])
  local reply = {'D', meta[4]}
  for _, entry in ipairs(entries) do
    reply[#reply + 1], reply[#reply + 2] = entry[1], entry[2][2]
  end
  return reply
end

redis.register_function{function_name = 'rg1_guard', callback = guard, flags = {'no-writes'}}
redis.register_function{function_name = 'rg1_counters', callback = counters, flags = {'no-writes'}}
redis.register_function{function_name = 'rg1_marks', callback = marks, flags = {'no-writes'}}
redis.register_function{function_name = 'rg1_tail', callback = tail, flags = {'no-writes'}}
