-- What writers do: loads, settlements, releases, the end of an activity, the consumer group.

-- The guard of a call that is not numbered: nil to go on.
local function refused(meta, gen)
  if not is_open(meta) then
    return 'R'
  elseif meta[3] ~= gen then
    return 'G' .. pack('>I8', meta[3])
  end
end

-- load: adds stock, or takes of what is free, once per load id; repeats the amounts afterwards.
-- KEYS meta, feed, stock. ARGV generation, activity, load id, changes (SKU 2, amount 8, below zero to take).
-- Returns 'D' and what was really added or taken, in the same form. An archived activity takes and gives nothing:
-- a late copy must not bring deleted stock back.
local function load(keys, args)
  local gen, id, field, changes = args[1], args[2], 'load:' .. args[3], args[4]
  local meta = redis.call('HMGET', keys[1], 'epoch', 'phase', 'gen', 'seq', 'a:' .. id)
  local refusal = refused(meta, gen)
  if refusal then
    return refusal
  end
  local flat = split(changes, '>I2i8', 10, 2)
  if meta[5] == 'archived' then
    for i = 2, #flat, 2 do
      flat[i] = 0
    end
    return 'D' .. pack('>' .. rep('I2i8', #flat / 2), unpack(flat))
  end
  local done = redis.call('HGET', keys[3], field)
  if done then
    return 'D' .. done
  end
  local skus = {}
  for i = 1, #flat, 2 do
    skus[#skus + 1] = flat[i]
  end
  local free, out, brought_in = read_stock(keys[3], skus)
  local fields, packed, amounts = {}, {}, {}
  for i = 1, #flat, 2 do
    local sku, amount = flat[i], flat[i + 1]
    local before = free[sku]
    if amount < 0 then
      amount = -math.min(-amount, before or 0)
    end
    local after = (before or 0) + amount
    if after > 4294967295 then
      return redis.error_reply('ERR load ' .. args[3] .. ' would bring SKU ' .. sku .. ' over 4294967295 units')
    end
    if amount ~= 0 or (not before and flat[i + 1] >= 0) then
      free[sku] = after
      packed[#packed + 1] = pack_counters(sku, after, out[sku], brought_in[sku])
      fields[#fields + 1], fields[#fields + 2] = 'free:' .. sku, after
    end
    amounts[#amounts + 1] = pack('>I2i8', sku, amount)
  end
  done = concat(amounts)
  if #packed > 0 then
    local seq = tonumber(meta[4]) + 1
    append(keys[2], gen, seq, LOADED, 0, pack('>I2', 1) .. pack_group(id, packed))
    hset(keys[3], fields)
    redis.call('HSET', keys[1], 'seq', seq)
  end
  redis.call('HSET', keys[3], field, done)
  if not meta[5] then
    redis.call('HSET', keys[1], 'a:' .. id, 'live')
  end
  return 'D' .. done
end

local function moves_forward(from, to)
  if RANK[from] then
    return RANK[to] ~= nil and RANK[to] > RANK[from]
  end
  return to == REFUND_DUE and (from == CLOSED or from == FAILED)
end

-- settled: moves marks forward to what SQL says, each only where the order number is the same. Never back, and never
-- to a state that gives units back: that is release's.
-- KEYS meta, feed, then per activity buyers. ARGV generation, then per activity its id, marks (user 8, mark 22).
local function settled(keys, args)
  local gen = args[1]
  local meta = redis.call('HMGET', keys[1], 'epoch', 'phase', 'gen', 'seq')
  local refusal = refused(meta, gen)
  if refusal then
    return refusal
  end
  local groups, writes = {}, {}
  for g = 1, (#args - 1) / 2 do
    local id, flat, users = args[2 * g], split(args[2 * g + 1], 'c8c22', 30, 2), {}
    for i = 1, #flat, 2 do
      users[#users + 1] = flat[i]
    end
    local held, fields = hmget(keys[2 + g], users), {}
    for i = 1, #users do
      local old, new = held[i], flat[2 * i]
      if old and sub(old, 1, 8) == sub(new, 1, 8) and moves_forward(byte(old, 14), byte(new, 14)) then
        fields[#fields + 1], fields[#fields + 2] = users[i], sub(old, 1, 13) .. sub(new, 14)
      end
    end
    if #fields > 0 then
      groups[#groups + 1] = pack('>I4I4B', id, #fields / 2, 30) .. concat(fields)
      writes[#writes + 1] = {keys[2 + g], fields}
    end
  end
  if #writes > 0 then
    local seq = tonumber(meta[4]) + 1
    append(keys[2], gen, seq, MARKED, #groups, concat(groups) .. pack('>I2', 0))
    for _, write in ipairs(writes) do
      hset(write[1], write[2])
    end
    redis.call('HSET', keys[1], 'seq', seq)
  end
  return 'D'
end

-- release: a live mark of this order number becomes CLOSED or FAILED and its units are free again.
-- KEYS meta, feed, stock, buyers. ARGV generation, activity, user 8, order 8, state.
-- Returns 'D' and 'R' released, 'W' was released before, 'N' no such mark.
local function release(keys, args)
  local gen, id, user, state = args[1], args[2], args[3], tonumber(args[5])
  local meta = redis.call('HMGET', keys[1], 'epoch', 'phase', 'gen', 'seq', 'a:' .. id)
  local refusal = refused(meta, gen)
  if refusal then
    return refusal
  end
  local old = redis.call('HGET', keys[4], user)
  if not old or sub(old, 1, 8) ~= args[4] then
    return 'DN'
  elseif not LIVE[byte(old, 14)] then
    return 'DW'
  end
  local sku, quantity = unpack_bytes('>I2I2', old, 9)
  local free, out, brought_in = read_stock(keys[3], {sku})
  if not free[sku] then
    return corrupt(keys[3], 'a mark holds units of SKU ' .. sku .. ', which has no stock here')
  end
  local new, left, seq = sub(old, 1, 13) .. char(state) .. sub(old, 15), free[sku] + quantity, tonumber(meta[4]) + 1
  append(keys[2], gen, seq, MARKED, 1, pack('>I4I4B', id, 1, 8 + #new) .. user .. new .. pack('>I2', 1)
    .. pack_group(id, {pack_counters(sku, left, out[sku], brought_in[sku])}))
  redis.call('HSET', keys[4], user, new)
  redis.call('HSET', keys[3], 'free:' .. sku, left)
  redis.call('HSET', keys[1], 'seq', seq)
  return 'DR'
end

-- end: nothing of the activity is reserved or moved out any more. KEYS meta. ARGV generation, activity.
-- Returns 'D' and 'E' ending or 'A' archived before.
local function end_(keys, args)
  local field = 'a:' .. args[2]
  local meta = redis.call('HMGET', keys[1], 'epoch', 'phase', 'gen', field)
  local refusal = refused(meta, args[1])
  if refusal then
    return refusal
  elseif meta[4] == 'archived' then
    return 'DA'
  end
  redis.call('HSET', keys[1], field, 'ending')
  return 'DE'
end

-- archive: deletes an ending activity's keys and leaves a tombstone. KEYS meta, stock, buyers. ARGV generation,
-- activity. Returns 'D' and 'A' archived, or 'L' when it has not ended here: nothing done.
local function archive(keys, args)
  local field = 'a:' .. args[2]
  local meta = redis.call('HMGET', keys[1], 'epoch', 'phase', 'gen', field)
  local refusal = refused(meta, args[1])
  if refusal then
    return refusal
  elseif meta[4] == 'ending' then
    redis.call('HSET', keys[1], field, 'archived')
    redis.call('UNLINK', keys[2], keys[3])
  elseif meta[4] ~= 'archived' then
    return 'DL'
  end
  return 'DA'
end

-- claim: takes over what a consumer left unacknowledged. KEYS meta, feed. ARGV group, consumer, idle milliseconds,
-- cursor, how many. Returns {'D', generation, next cursor, id, body...} or {'R'}.
local function claim(keys, args)
  local meta = redis.call('HMGET', keys[1], 'epoch', 'phase', 'gen')
  if not is_open(meta) then
    return {'R'}
  end
  local page = redis.call('XAUTOCLAIM', keys[2], args[1], args[2], args[3], args[4], 'COUNT', args[5])
  local reply = {'D', meta[3], page[1]}
  for _, entry in ipairs(page[2]) do
    reply[#reply + 1], reply[#reply + 2] = entry[1], entry[2][2]
  end
  return reply
end

-- What XINFO tells of several things, each by the names of its fields.
local function xinfo(...)
  local tables = {}
  for i, info in ipairs(redis.call('XINFO', ...)) do
    local fields = {}
    for at = 1, #info, 2 do
      fields[info[at]] = info[at + 1]
    end
    tables[i] = fields
  end
  return tables
end

-- The consumer groups of a feed: name, pending, last delivered id, lag.
local function groups_of(feed)
  return xinfo('GROUPS', feed)
end

-- The first id that a group has not finished with.
local function unfinished(feed, group)
  local pending = redis.call('XPENDING', feed, group.name)
  if pending[1] > 0 then
    return parse_id(pending[2])
  end
  local gen, seq = parse_id(group['last-delivered-id'])
  return gen, seq + 1
end

local function entry_at(feed, from, to, backwards)
  local found = backwards and redis.call('XREVRANGE', feed, from, to, 'COUNT', 1) or redis.call('XRANGE', feed, from, to, 'COUNT', 1)
  if found[1] then
    local gen, seq = parse_id(found[1][1])
    local body = found[1][2][2]
    return gen, seq, #body >= 10 and (unpack_bytes('>I8', body, 3)) or 0
  end
end

local function before(gen, seq, other_gen, other_seq)
  return gen < other_gen or (gen == other_gen and seq < other_seq)
end

-- backlog: what a group has not finished. KEYS feed. ARGV group.
-- Returns {pending, undelivered, when the oldest of them came or 0}; {} when there is no such group.
local function backlog(keys, args)
  bind()
  if redis.call('EXISTS', keys[1]) == 0 then
    return {0, 0, 0}
  end
  for _, group in ipairs(groups_of(keys[1])) do
    if group.name == args[1] then
      local gen, seq = unfinished(keys[1], group)
      local _, _, at = entry_at(keys[1], id_of(format('%.0f', gen), seq), '+')
      return {group.pending, group.lag or redis.call('XLEN', keys[1]), format('%.0f', at or 0)}
    end
  end
  return {0, redis.call('XLEN', keys[1]), 0}
end

-- trim: drops entries of the oldest generation here that every group has finished with and that are older than the
-- read models need, at most so many; always leaves the newest (rule 15). KEYS meta, feed. ARGV group, age in
-- milliseconds, how many. Returns how many were dropped.
local function trim(keys, args)
  local feed, meta = keys[2], redis.call('HMGET', keys[1], 'epoch', 'phase')
  if not is_open(meta) or redis.call('EXISTS', feed) == 0 then
    return 0
  end
  local cut_gen, cut_seq = entry_at(feed, '+', '-', true)
  local gen, first, first_at = entry_at(feed, '-', '+')
  if not gen then
    return 0
  end
  local known = false
  for _, group in ipairs(groups_of(feed)) do
    known = known or group.name == args[1]
    local group_gen, group_seq = unfinished(feed, group)
    if before(group_gen, group_seq, cut_gen, cut_seq) then
      cut_gen, cut_seq = group_gen, group_seq
    end
  end
  local now = redis.call('TIME')
  local oldest_kept_at = now[1] * 1000 + floor(now[2] / 1000) - tonumber(args[2])
  if not known or not before(gen, first, cut_gen, cut_seq) or first_at >= oldest_kept_at then
    return 0
  end
  -- Ids of a generation count up by one and their times never fall, so the first one to keep is found by halving.
  local gen_text, last = format('%.0f', gen)
  if gen == cut_gen then
    last = cut_seq
  else
    local _, newest = entry_at(feed, gen_text .. '-18446744073709551615', '-', true)
    last = newest + 1
  end
  last = math.min(last, first + tonumber(args[3]))
  local low, high = first + 1, last
  while low < high do
    local middle = floor((low + high) / 2)
    local found_gen, found_seq, at = entry_at(feed, id_of(gen_text, middle), id_of(gen_text, last))
    if found_gen and found_seq < last and at < oldest_kept_at then
      low = found_seq + 1
    else
      high = middle
    end
  end
  return redis.call('XTRIM', feed, 'MINID', '=', id_of(gen_text, low))
end

-- forget: drops the stored replies of processes that are gone, and those of their consumers that have nothing pending
-- (deleted, it would be delivered to nobody ever after). KEYS calls, feed. ARGV group, then the processes.
-- Returns how many consumers were dropped.
local function forget(keys, args)
  bind()
  local gone, dropped = {}, 0
  for i = 2, #args do
    gone[args[i]] = true
  end
  local consumers = {}
  for _, group in ipairs(redis.call('EXISTS', keys[2]) == 1 and groups_of(keys[2]) or {}) do
    if group.name == args[1] then
      consumers = xinfo('CONSUMERS', keys[2], args[1])
    end
  end
  redis.call('HDEL', keys[1], unpack(args, 2))
  for _, consumer in ipairs(consumers) do
    if gone[consumer.name] and consumer.pending == 0 then
      redis.call('XGROUP', 'DELCONSUMER', keys[2], args[1], consumer.name)
      dropped = dropped + 1
    end
  end
  return dropped
end

redis.register_function('rg1_load', load)
redis.register_function('rg1_settled', settled)
redis.register_function('rg1_release', release)
redis.register_function('rg1_end', end_)
redis.register_function('rg1_archive', archive)
redis.register_function('rg1_claim', claim)
redis.register_function{function_name = 'rg1_backlog', callback = backlog, flags = {'no-writes'}}
-- Allowed when memory is out: they are what frees some.
redis.register_function{function_name = 'rg1_trim', callback = trim, flags = {'allow-oom'}}
redis.register_function{function_name = 'rg1_forget', callback = forget, flags = {'allow-oom'}}
