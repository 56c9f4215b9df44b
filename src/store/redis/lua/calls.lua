-- What a gateway's numbered calls do (rules 1 to 4).

-- Guard and number of a call. Returns a reply that ends it, or nil to go on.
-- A closed shard stores nothing, not even the refusal: it opens again only under a later generation, which refuses
-- the call as well. A stored reply is written again when it is given again, so that a WAIT after it means something.
local function begin(meta, calls, gen, process, number)
  if not is_open(meta) then
    return 'R'
  end
  local last = redis.call('HGET', calls, process)
  if last then
    local before = unpack_bytes('>I8', last)
    if before == number then
      redis.call('HSET', calls, process, last)
      return sub(last, 9)
    elseif before > number then
      return 'S'
    end
  end
  if meta[3] ~= gen then
    local reply = 'G' .. pack('>I8', meta[3])
    redis.call('HSET', calls, process, pack('>I8', number) .. reply)
    return reply
  end
end

local function finish(calls, process, number, gen, seq, counters, answers)
  local stored = pack('>I8BI8I8', number, 68, gen, seq) .. counters .. answers
  redis.call('HSET', calls, process, stored)
  return sub(stored, 9)
end

-- The names of an SKU's fields, made once.
local NAMES, NAMES_MAX, names_made = {}, 10000, 0
local function names_of(sku)
  local names = NAMES[sku]
  if not names then
    if names_made >= NAMES_MAX then
      NAMES, names_made = {}, 0
    end
    names = {'free:' .. sku, 'out:' .. sku, 'in:' .. sku}
    NAMES[sku], names_made = names, names_made + 1
  end
  return names
end

-- The stock of the SKUs that a call names: free, out, in by SKU.
local function read_stock(key, skus)
  local fields, n = {}, #skus
  for i = 1, n do
    local names = names_of(skus[i])
    fields[3 * i - 2], fields[3 * i - 1], fields[3 * i] = names[1], names[2], names[3]
  end
  local values, free, out, brought_in = hmget(key, fields), {}, {}, {}
  for i = 1, n do
    local sku = skus[i]
    free[sku] = tonumber(values[3 * i - 2] or nil)
    out[sku], brought_in[sku] = values[3 * i - 1] or '', values[3 * i] or ''
  end
  return free, out, brought_in
end

-- Raises `in` to what was announced; notes what changed.
local function bring_in(moves, here, free, brought_in, touched, arrived)
  for at = 1, #moves, 11 do
    local sku, source, out = unpack_bytes('>I2BI8', moves, at)
    if free[sku] and source ~= here then
      local more = out - peer_units(brought_in[sku], source)
      if more > 0 then
        brought_in[sku] = with_peer(brought_in[sku], source, out)
        free[sku] = free[sku] + more
        touched[sku], arrived[sku] = true, true
      end
    end
  end
end

-- Tries the items in order; returns the packed answers, the marks to write, the same as a blob, and how many.
-- A user who comes twice is invisible to the reading of all marks at once: `twice` says that one does.
local function take(buyers, items, twice, is_live, free, touched)
  local n = #items / 22
  if n == 0 then
    return '\1', {}, '', 0
  end
  if not is_live then
    return '\0' .. rep('\5', n), {}, '', 0
  end
  local flat, users = split(items, 'c8c14', 22, 2), {}
  for i = 1, n do
    users[i] = flat[2 * i - 1]
  end
  local held, seen, codes, fresh = hmget(buyers, users), twice and {}, nil, 0
  for i = 1, n do
    local mark, old, code = flat[2 * i], held[i], nil
    if seen then
      old = seen[users[i]] or old
    end
    if old then
      if not LIVE[byte(old, 14)] then
        code = '\4'
      elseif sub(old, 1, 8) == sub(mark, 1, 8) then
        code = '\1'
      else
        code = '\2' .. long_mark(old)
      end
    else
      local s1, s2, q1, q2, attempt = byte(mark, 9, 13)
      local sku, quantity = s1 * 256 + s2, q1 * 256 + q2
      local left = free[sku]
      if attempt ~= 1 then
        code = '\4'
      elseif not left then
        code = '\5'
      elseif left < quantity then
        code = '\3'
      else
        free[sku], fresh = left - quantity, fresh + 1
        touched[sku] = true
        if seen then
          seen[users[i]] = mark
        end
      end
    end
    if code then
      codes = codes or {}
      codes[i] = code
    end
  end
  if not codes then
    return '\1', flat, items, n
  end
  local taken, refused = {}, false
  for i = 1, n do
    if codes[i] then
      refused = refused or codes[i] ~= '\1'
    else
      codes[i] = '\1'
      taken[#taken + 1], taken[#taken + 2] = users[i], flat[2 * i]
    end
  end
  return refused and '\0' .. concat(codes) or '\1', taken, concat(taken), fresh
end

-- reserve: brings in announced units, then reserves for each item in order.
-- KEYS meta, feed, calls, then per activity stock, buyers. ARGV generation, process, call number, this shard, then
-- per activity its id, its SKUs (2 bytes each), moves (SKU 2, source 1, cumulative out 8), items (user 8, mark 14),
-- and 1 if a user comes twice among them.
-- Returns 'D' generation 8, seq 8, counters, answers; or 'S', 'G' generation 8, 'R'.
local function reserve(keys, args)
  local gen, process, number, here = args[1], args[2], tonumber(args[3]), tonumber(args[4])
  local groups, wanted = (#args - 4) / 5, {'epoch', 'phase', 'gen', 'seq'}
  for g = 1, groups do
    wanted[4 + g] = 'a:' .. args[5 * g]
  end
  local meta = redis.call('HMGET', keys[1], unpack(wanted))
  local refusal = begin(meta, keys[3], gen, process, number)
  if refusal then
    return refusal
  end
  local writes, named, changed, marks, answers = {}, '', '', '', ''
  local named_count, changed_count, mark_groups = 0, 0, 0
  for g = 1, groups do
    local at = 5 * g
    local id, skus, moves = args[at], split(args[at + 1], '>I2', 2, 1), args[at + 2]
    local stock, buyers = keys[2 + 2 * g], keys[3 + 2 * g]
    local free, out, brought_in = read_stock(stock, skus)
    local touched, arrived = {}, {}
    if moves ~= '' then
      bring_in(moves, here, free, brought_in, touched, arrived)
    end
    local answer, taken, blob, fresh =
      take(buyers, args[at + 3], args[at + 4] == '1', meta[4 + g] == 'live', free, touched)
    local packed, events, fields, n_packed, n_events, n_fields = {}, {}, {}, 0, 0, 0
    for i = 1, #skus do
      local sku = skus[i]
      local left = free[sku]
      if left then
        local counters = pack_counters(sku, left, out[sku], brought_in[sku])
        n_packed = n_packed + 1
        packed[n_packed] = counters
        if touched[sku] then
          n_events = n_events + 1
          events[n_events] = counters
          fields[n_fields + 1], fields[n_fields + 2] = names_of(sku)[1], left
          n_fields = n_fields + 2
          if arrived[sku] then
            fields[n_fields + 1], fields[n_fields + 2] = names_of(sku)[3], brought_in[sku]
            n_fields = n_fields + 2
          end
        end
      end
    end
    local group
    if n_packed > 0 then
      group = pack_group(id, packed)
      named, named_count = named .. group, named_count + 1
    end
    if n_events > 0 then
      changed = changed .. (n_events == n_packed and group or pack_group(id, events))
      changed_count = changed_count + 1
      writes[changed_count] = {stock, fields, buyers, taken}
    end
    if fresh > 0 then
      marks, mark_groups = marks .. pack('>I4I4B', id, fresh, 22) .. blob, mark_groups + 1
    end
    answers = answers .. answer
  end
  local seq = tonumber(meta[4])
  if changed_count > 0 then
    seq = seq + 1
    append(keys[2], gen, seq, mark_groups > 0 and MARKED or MOVED, mark_groups,
      marks .. pack('>I2', changed_count) .. changed)
    for i = 1, changed_count do
      local write = writes[i]
      hset(write[3], write[4])
      hset(write[1], write[2])
    end
    redis.call('HSET', keys[1], 'seq', seq)
  end
  return finish(keys[3], process, number, gen, seq, pack('>I2', named_count) .. named, answers)
end

-- move_out: raises out[sku, target] by the lesser of what is wanted and what is free.
-- KEYS meta, feed, calls, stock. ARGV generation, process, call number, this shard, activity, SKU, target, want.
-- Returns as reserve does, without answers.
local function move_out(keys, args)
  local gen, process, number, id = args[1], args[2], tonumber(args[3]), args[5]
  local sku, target = tonumber(args[6]), tonumber(args[7])
  local meta = redis.call('HMGET', keys[1], 'epoch', 'phase', 'gen', 'seq', 'a:' .. id)
  local refusal = begin(meta, keys[3], gen, process, number)
  if refusal then
    return refusal
  end
  local free, out, brought_in = read_stock(keys[4], {sku})
  local seq, counters = tonumber(meta[4]), pack('>I2', 0)
  if free[sku] then
    local units = meta[5] == 'live' and args[4] ~= args[7] and math.min(tonumber(args[8]), free[sku]) or 0
    local left, gone = free[sku] - units, out[sku]
    if units > 0 then
      gone = with_peer(gone, target, peer_units(gone, target) + units)
    end
    counters = pack('>I2', 1) .. pack_group(id, {pack_counters(sku, left, gone, brought_in[sku])})
    if units > 0 then
      seq = seq + 1
      append(keys[2], gen, seq, MOVED, 0, counters)
      redis.call('HSET', keys[4], 'free:' .. sku, left, 'out:' .. sku, gone)
      redis.call('HSET', keys[1], 'seq', seq)
    end
  end
  return finish(keys[3], process, number, gen, seq, counters, '')
end

redis.register_function('rg1_reserve', reserve)
redis.register_function('rg1_move_out', move_out)
