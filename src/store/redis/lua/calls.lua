-- What a gateway's numbered calls do (rules 1 to 4).

-- Guard and number of a call; `own` is the epoch of this Redis. Returns a reply that ends the call, or nil to go on.
-- A closed shard stores nothing, not even the refusal: it opens again only under a later generation, which refuses
-- the call as well. A stored reply is written again when it is given again, so that a WAIT after it means something.
local function begin(meta, own, calls, gen, process, number)
  if not is_open(meta, own) then
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

-- move_out: raises out[sku, target] by the lesser of what is wanted and what is free.
-- KEYS meta, feed, calls, stock. ARGV generation, process, call number, this shard, activity, SKU, target, want.
-- Returns as reserve does, without answers.
local function move_out(keys, args)
  local gen, process, number, id = args[1], args[2], tonumber(args[3]), args[5]
  local sku, target = tonumber(args[6]), tonumber(args[7])
  local meta = redis.call('HMGET', keys[1], 'epoch', 'phase', 'gen', 'seq', 'a:' .. id)
  local refusal = begin(meta, own_epoch(), keys[3], gen, process, number)
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

redis.register_function('rg1_move_out', move_out)
