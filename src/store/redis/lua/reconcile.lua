-- What `rushgate reconcile` reads, and how it corrects. Every correction is a difference, never a value: what is wrong
-- with a shard stays the same while it sells, so that a difference found a moment ago still holds. The shard counts its
-- corrections (`mended`); one that expects another count does nothing: a late copy of it, or two reconciliations at once.

-- What a correction goes by: epoch, phase, gen, seq, mended and the activity's phase.
local function meta_of(key, activity)
  return redis.call('HMGET', key, 'epoch', 'phase', 'gen', 'seq', 'mended', 'a:' .. activity)
end

-- books: an activity's stock in one shard as it lies there, whatever is wrong with it. KEYS meta, stock. ARGV activity.
-- Returns {'D', generation, epoch, seq, corrections, {field, value, ...}}, {'N'} when it is not here, or {'R'}.
local function books(keys, args)
  local meta = meta_of(keys[1], args[1])
  if not is_open(meta) then
    return {'R'}
  elseif not meta[6] or meta[6] == 'archived' then
    return {'N'}
  end
  return {'D', meta[3], meta[1], meta[4], meta[5] or '0', redis.call('HGETALL', keys[2])}
end

-- The guard of a correction: nil to go on.
local function not_now(meta, gen, expected)
  local refusal = refused(meta, gen)
  if refusal then
    return refusal
  elseif (meta[5] or '0') ~= expected or not meta[6] or meta[6] == 'archived' then
    return 'S'
  end
end

local function count_mended(key, expected)
  redis.call('HSET', key, 'mended', format('%.0f', tonumber(expected) + 1))
end

-- The event of an SKU's counters, or nothing where they cannot be told.
local function tell_counters(feed, gen, seq, activity, sku, free, out, brought_in)
  append(feed, gen, seq, MOVED, 0, pack('>I2', 1) .. pack_group(activity, {pack_counters(sku, free, out, brought_in)}))
end

-- mend_units: free units of an SKU are raised or lowered by a difference, lowered by no more than are free.
-- KEYS meta, feed, stock. ARGV generation, activity, corrections expected, SKU, difference.
-- Returns 'D' and by how much (8 bytes).
local function mend_units(keys, args)
  local gen, id, sku, by = args[1], args[2], tonumber(args[4]), tonumber(args[5])
  local meta = meta_of(keys[1], id)
  local refusal = not_now(meta, gen, args[3])
  if refusal then
    return refusal
  end
  local free, out, brought_in = read_stock(keys[3], {sku})
  local before = free[sku] or 0
  if by < 0 then
    by = -math.min(-by, math.max(before, 0))
  end
  local after = before + by
  if after > 4294967295 then
    return redis.error_reply('ERR SKU ' .. sku .. ' would have more than 4294967295 units')
  end
  if by ~= 0 then
    local seq = tonumber(meta[4]) + 1
    tell_counters(keys[2], gen, seq, id, sku, math.max(after, 0), out[sku], brought_in[sku])
    redis.call('HSET', keys[3], 'free:' .. sku, format('%.0f', after))
    redis.call('HSET', keys[1], 'seq', seq)
  end
  count_mended(keys[1], args[3])
  return 'D' .. pack('>i8', by)
end

-- mend_moved: raises `out` or `in` of a pair to what the other side says; units that arrive are free.
-- KEYS meta, feed, stock. ARGV generation, activity, corrections expected, SKU, 'out' or 'in', peer, cumulative units.
-- Returns 'D' and by how much (8 bytes).
local function mend_moved(keys, args)
  local gen, id, sku, peer, units = args[1], args[2], tonumber(args[4]), tonumber(args[6]), tonumber(args[7])
  local meta = meta_of(keys[1], id)
  local refusal = not_now(meta, gen, args[3])
  if refusal then
    return refusal
  end
  local free, out, brought_in = read_stock(keys[3], {sku})
  local is_out = args[5] == 'out'
  local list = is_out and out[sku] or brought_in[sku]
  local more = math.max(units - peer_units(list, peer), 0)
  if more > 0 then
    local seq, left = tonumber(meta[4]) + 1, free[sku] or 0
    list = with_peer(list, peer, units)
    if is_out then
      out[sku] = list
    else
      brought_in[sku], left = list, left + more
    end
    tell_counters(keys[2], gen, seq, id, sku, math.max(left, 0), out[sku], brought_in[sku])
    redis.call('HSET', keys[3], args[5] .. ':' .. sku, list, 'free:' .. sku, format('%.0f', left))
    redis.call('HSET', keys[1], 'seq', seq)
  end
  count_mended(keys[1], args[3])
  return 'D' .. pack('>i8', more)
end

-- mend_load: remembers a load that SQL knows to be applied here. Moves no units.
-- KEYS meta, stock. ARGV generation, activity, corrections expected, load id, amounts (SKU 2, amount 8).
-- Returns 'D' and 1, or 0 when it is remembered already (8 bytes).
local function mend_load(keys, args)
  local meta = meta_of(keys[1], args[2])
  local refusal = not_now(meta, args[1], args[3])
  if refusal then
    return refusal
  end
  local noted = redis.call('HSETNX', keys[2], 'load:' .. args[4], args[5])
  count_mended(keys[1], args[3])
  return 'D' .. pack('>i8', noted)
end

-- The users of marks, the users and marks in turn, and what each user has now. Behind the guard, which binds.
local function named(buyers, marks, item_format, item_bytes)
  local flat, users = split(marks, item_format, item_bytes, 2), {}
  for i = 1, #flat, 2 do
    users[#users + 1] = flat[i]
  end
  return users, flat, hmget(buyers, users)
end

-- mend_marks: writes marks of orders where the user has none that is live, nor one of a later attempt. Takes no units: what they hold is counted in
-- the difference of the SKU's units. KEYS meta, feed, buyers. ARGV generation, activity, corrections expected, marks
-- (user 8, mark 22). Returns 'D' and how many (8 bytes).
local function mend_marks(keys, args)
  local gen, id, fields = args[1], args[2], {}
  local meta = meta_of(keys[1], id)
  local refusal = not_now(meta, gen, args[3])
  if refusal then
    return refusal
  end
  local users, flat, held = named(keys[3], args[4], 'c8c22', 30)
  for i = 1, #users do
    local old, new = held[i], flat[2 * i]
    if not old or (not LIVE[byte(old, 14)] and byte(old, 13) <= byte(new, 13)) then
      fields[#fields + 1], fields[#fields + 2] = users[i], new
    end
  end
  if #fields > 0 then
    local seq = tonumber(meta[4]) + 1
    append(keys[2], gen, seq, MARKED, 1, pack('>I4I4B', id, #fields / 2, 30) .. concat(fields) .. pack('>I2', 0))
    for i = 2, #fields, 2 do
      fields[i] = byte(fields[i], 14) == 1 and sub(fields[i], 1, 14) or fields[i]
    end
    hset(keys[3], fields)
    redis.call('HSET', keys[1], 'seq', seq)
  end
  count_mended(keys[1], args[3])
  return 'D' .. pack('>i8', #fields / 2)
end

-- mend_records: appends the records of reservations once more, for writers that did not get them; only of marks that are
-- still reserved under that number. KEYS meta, feed, buyers. ARGV generation, activity, corrections expected, marks
-- (user 8, mark 14). Returns 'D' and how many (8 bytes).
local function mend_records(keys, args)
  local gen, id, told = args[1], args[2], {}
  local meta = meta_of(keys[1], id)
  local refusal = not_now(meta, gen, args[3])
  if refusal then
    return refusal
  end
  local users, flat, held = named(keys[3], args[4], 'c8c14', 22)
  for i = 1, #users do
    local old = held[i]
    if old and sub(old, 1, 14) == flat[2 * i] and byte(old, 14) == 1 then
      told[#told + 1] = users[i] .. flat[2 * i]
    end
  end
  if #told > 0 then
    local seq = tonumber(meta[4]) + 1
    append(keys[2], gen, seq, MARKED, 1, pack('>I4I4B', id, #told, 22) .. concat(told) .. pack('>I2', 0))
    redis.call('HSET', keys[1], 'seq', seq)
  end
  count_mended(keys[1], args[3])
  return 'D' .. pack('>i8', #told)
end

redis.register_function{function_name = 'rg1_books', callback = books, flags = {'no-writes'}}
redis.register_function('rg1_mend_units', mend_units)
redis.register_function('rg1_mend_moved', mend_moved)
redis.register_function('rg1_mend_load', mend_load)
redis.register_function('rg1_mend_marks', mend_marks)
redis.register_function('rg1_mend_records', mend_records)
