-- What every function shares: the guard, packing, the feed. Integers are big-endian; order numbers exceed 2^53 and
-- stay bytes. A function reads (and so checks the types of) everything it will write, then appends its event, then
-- changes counters and marks: scripts do not roll back.

-- While the library is loaded only `redis` exists; the rest is bound when the first function runs.
local byte, sub, find, rep, char, format, concat, floor, pack, unpack_bytes, call

local FORMAT = 1
local BEGUN, MARKED, MOVED, LOADED = 0, 1, 2, 3
-- Order states by their wire numbers: those that hold units, and how far each has come.
local LIVE = {[1] = true, [2] = true, [3] = true, [7] = true}
local RANK = {[1] = 0, [7] = 1, [2] = 2, [3] = 3}
local CLOSED, FAILED, REFUND_DUE = 4, 5, 6

-- The run id of this process. INFO is its only source in here; it dies with the process, as this variable does.
local run_id
local function bind()
  if not run_id then
    byte, sub, find, rep, char = string.byte, string.sub, string.find, string.rep, string.char
    format, concat, floor = string.format, table.concat, math.floor
    pack, unpack_bytes, call = struct.pack, struct.unpack, redis.call
    run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
  end
end

-- The epoch of this Redis, which a shard may trust: the process, and its replication id. That one is another after
-- every promotion: a process that was the master, followed one that had lost writes, and is the master again must not
-- pass for what it was. So it is asked for at every call; looked at where it stood the last time, because searching
-- costs more than asking. A replica has an epoch that no shard trusts. Every function asks for the epoch before it
-- does anything else but read.
local HEAD = '# Replication\r\nrole:master\r\n'
local epoch, replid, replid_at
local function own_epoch()
  bind()
  local info = redis.call('INFO', 'replication')
  if sub(info, 1, #HEAD) ~= HEAD then
    return run_id .. ':replica'
  end
  if not epoch or find(info, replid, replid_at, true) ~= replid_at then
    local from, _, line = find(info, '(master_replid:%x+)')
    replid_at, replid = from, line
    epoch = run_id .. ':' .. sub(line, 15)
  end
  return epoch
end

-- Rule 1. `meta` begins with the values of epoch, phase; `own` is the epoch of this Redis, if it is known already.
local function is_open(meta, own)
  return meta[1] == (own or own_epoch()) and meta[2] == 'open'
end

local function corrupt(key, what)
  return redis.error_reply('CORRUPT ' .. key .. ': ' .. what)
end

-- A whole number as text. Given as a number, Redis would write it as a fraction that happens to be whole, which costs as
-- much as a command does.
local function whole(number)
  return format('%d', number)
end

-- `..` writes numbers with 14 digits; both of these stay far below.
local function id_of(gen, seq)
  return gen .. '-' .. seq
end

local function parse_id(id)
  local gen, seq = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(gen), tonumber(seq)
end

-- Unix milliseconds by Redis's clock.
local function now_ms()
  local now = redis.call('TIME')
  return now[1] * 1000 + floor(now[2] / 1000)
end

-- Appends an event: format, kind, when (now, if it is not known already), how many groups of marks, and the rest.
local function append(feed, gen, seq, kind, mark_groups, rest, at_ms)
  local head = pack('>BBI8I2', FORMAT, kind, at_ms or now_ms(), mark_groups)
  redis.call('XADD', feed, id_of(gen, seq), 'e', head .. rest)
end

-- Cumulative units per peer shard lie as (shard 1, units 8) in ascending order of shards.
local function peer_units(list, peer)
  for at = 1, #list, 9 do
    if byte(list, at) == peer then
      return (unpack_bytes('>I8', list, at + 1))
    end
  end
  return 0
end

local function with_peer(list, peer, units)
  local entry, at = pack('>BI8', peer, units), 1
  while at <= #list and byte(list, at) < peer do
    at = at + 9
  end
  local after = at
  if at <= #list and byte(list, at) == peer then
    after = at + 9
  end
  return sub(list, 1, at - 1) .. entry .. sub(list, after)
end

-- One SKU's counters as replies and events carry them.
local function pack_counters(sku, free, out, brought_in)
  if out == '' and brought_in == '' then
    return pack('>I2I4I2', sku, free, 0)
  end
  return pack('>I2I4B', sku, free, #out / 9) .. out .. char(#brought_in / 9) .. brought_in
end

local function pack_group(activity, packed)
  return pack('>I4I2', activity, #packed) .. (packed[2] and concat(packed) or packed[1] or '')
end

-- Counters of every SKU of an activity, by its whole stock hash; an error reply if a field is malformed.
local function all_counters(key, activity)
  local fields, by_sku, skus = redis.call('HGETALL', key), {}, {}
  for i = 1, #fields, 2 do
    local kind, sku = string.match(fields[i], '^(%a+):(%d+)$')
    if kind == 'free' or kind == 'out' or kind == 'in' then
      sku = tonumber(sku)
      by_sku[sku] = by_sku[sku] or {}
      by_sku[sku][kind] = fields[i + 1]
      if kind == 'free' then
        skus[#skus + 1] = sku
      end
    end
  end
  table.sort(skus)
  local packed = {}
  for i, sku in ipairs(skus) do
    local known = by_sku[sku]
    local free = tonumber(known.free)
    if not free or free < 0 then
      return nil, corrupt(key, 'free:' .. sku .. ' is no number of units')
    end
    packed[i] = pack_counters(sku, free, known.out or '', known['in'] or '')
  end
  return pack_group(activity, packed)
end

-- Splits a blob into its parts, at most 1000 repetitions of a format at a time (the Lua stack is finite).
local FORMATS = {}
local function split(blob, item_format, item_bytes, values)
  local parts, n, at = {}, 0, 1
  while at <= #blob do
    local count = math.min((#blob - at + 1) / item_bytes, 1000)
    local key = item_format .. count
    local repeated = FORMATS[key]
    if not repeated then
      repeated = rep(item_format, count)
      FORMATS[key] = repeated
    end
    if n == 0 and count * item_bytes == #blob then
      parts = {unpack_bytes(repeated, blob)}
      parts[#parts] = nil
      return parts
    end
    local some = {unpack_bytes(repeated, blob, at)}
    for i = 1, count * values do
      parts[n + i] = some[i]
    end
    n = n + count * values
    at = at + count * item_bytes
  end
  return parts
end

-- A variadic command over a list of any length.
local function hmget(key, fields)
  if #fields <= 4000 then
    return redis.call('HMGET', key, unpack(fields))
  end
  local values = {}
  for at = 1, #fields, 4000 do
    local some = redis.call('HMGET', key, unpack(fields, at, math.min(at + 3999, #fields)))
    for i = 1, #some do
      values[at + i - 1] = some[i]
    end
  end
  return values
end

local function hset(key, pairs_)
  if #pairs_ <= 4000 then
    if #pairs_ > 0 then
      redis.call('HSET', key, unpack(pairs_))
    end
    return
  end
  for at = 1, #pairs_, 4000 do
    redis.call('HSET', key, unpack(pairs_, at, math.min(at + 3999, #pairs_)))
  end
end

-- A mark with its pay-by time, which a reserved one does not have yet.
local function long_mark(mark)
  return #mark == 14 and mark .. '\0\0\0\0\0\0\0\0' or mark
end
