-- reserve (rules 1 to 4), for one shard or for several in one FCALL, each by itself.

-- A list of SKUs as calls name them, with the fields of their stock, made once: gateways name the same again and again.
local LISTS, LISTED_MAX, listed = {}, 10000, 0
local function list_of(packed)
  local list = LISTS[packed]
  if not list then
    list = split(packed, '>I2', 2, 1)
    local fields = {}
    for i = 1, #list do
      local names = names_of(list[i])
      fields[3 * i - 2], fields[3 * i - 1], fields[3 * i] = names[1], names[2], names[3]
    end
    list.fields = fields
    if listed + #list > LISTED_MAX then
      LISTS, listed = {}, 0
    end
    LISTS[packed], listed = list, listed + #list
  end
  return list
end

-- The stock of an SKU in one call: units left, `out`, `in`, whether anything changed, whether units arrived.
local LEFT, OUT, IN, TOUCHED, ARRIVED = 1, 2, 3, 4, 5

-- The stock of the SKUs of a list, by SKU; nothing of those that are not loaded.
local function stock_of(key, list)
  local values, stock = hmget(key, list.fields), {}
  for i = 1, #list do
    local left = tonumber(values[3 * i - 2] or nil)
    if left then
      stock[list[i]] = {left, values[3 * i - 1] or '', values[3 * i] or '', false, false}
    end
  end
  return stock
end

-- Raises `in` to what was announced.
local function bring_in(moves, here, stock)
  for at = 1, #moves, 11 do
    local sku, source, out = unpack_bytes('>I2BI8', moves, at)
    local of_sku = stock[sku]
    if of_sku and source ~= here then
      local more = out - peer_units(of_sku[IN], source)
      if more > 0 then
        of_sku[IN] = with_peer(of_sku[IN], source, out)
        of_sku[LEFT] = of_sku[LEFT] + more
        of_sku[TOUCHED], of_sku[ARRIVED] = true, true
      end
    end
  end
end

local NOTHING = {}

-- A number of groups as 2 bytes; it is 1 nearly always.
local function count_of(n)
  return n == 1 and '\0\1' or pack('>I2', n)
end

-- Tries the items in order; returns the packed answers, the marks to write, the same as a blob, and how many.
-- A user who comes twice is invisible to the reading of all marks at once: `twice` says that one does. Whoever has no
-- live mark asks for units, as often as `attempts` lets him, if it is given; those that are `promised` (a byte each) may.
local function take(buyers, items, twice, is_live, stock, attempts, promised)
  local n = #items / 22
  if n == 0 then
    return '\1', NOTHING, '', 0
  elseif not is_live then
    return '\0' .. rep('\5', n), NOTHING, '', 0
  end
  local flat, users, held
  if n == 1 then
    flat = {sub(items, 1, 8), sub(items, 9)}
    users, held = flat, {call('HGET', buyers, flat[1])}
  else
    flat, users = split(items, 'c8c14', 22, 2), {}
    for i = 1, n do
      users[i] = flat[2 * i - 1]
    end
    held = hmget(buyers, users)
  end
  if attempts then
    read_attempts(attempts, users, n)
  end
  local seen, codes, fresh = twice and {}, nil, 0
  for i = 1, n do
    local mark, old, code = flat[2 * i], held[i], nil
    if seen then
      old = seen[users[i]] or old
    end
    if old and LIVE[byte(old, 14)] then
      if sub(old, 1, 8) == sub(mark, 1, 8) then
        code = '\1'
      else
        code = '\2' .. long_mark(old)
      end
    else
      local s1, s2, q1, q2, attempt = byte(mark, 9, 13)
      local of_sku, quantity = stock[s1 * 256 + s2], q1 * 256 + q2
      -- One that is over gives way to the next attempt, and to no other: not to a late copy of an earlier one.
      if attempt ~= (old and byte(old, 13) or 0) + 1 then
        code = '\4'
      elseif attempts and byte(promised, i) ~= 1 and not may_ask(attempts, users[i], sub(mark, 1, 8)) then
        code = too_often(attempts)
      elseif not of_sku then
        code = '\5'
      else
        local left = of_sku[LEFT]
        if left < quantity then
          code = '\3'
        else
          of_sku[LEFT], of_sku[TOUCHED], fresh = left - quantity, true, fresh + 1
          if seen then
            seen[users[i]] = mark
          end
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

-- The counters of a list's SKUs as a group, or nothing if none is loaded; then, if any changed, theirs alone, and the
-- fields to write.
local function counted(id, list, stock)
  local packed, events, fields, n_packed, n_events, n_fields = {}, {}, {}, 0, 0, 0
  for i = 1, #list do
    local sku = list[i]
    local of_sku = stock[sku]
    if of_sku then
      n_packed = n_packed + 1
      packed[n_packed] = pack_counters(sku, of_sku[LEFT], of_sku[OUT], of_sku[IN])
      if of_sku[TOUCHED] then
        n_events = n_events + 1
        events[n_events] = packed[n_packed]
        fields[n_fields + 1], fields[n_fields + 2] = list.fields[3 * i - 2], whole(of_sku[LEFT])
        n_fields = n_fields + 2
        if of_sku[ARRIVED] then
          fields[n_fields + 1], fields[n_fields + 2] = list.fields[3 * i], of_sku[IN]
          n_fields = n_fields + 2
        end
      end
    end
  end
  if n_packed > 0 then
    local group = pack_group(id, packed)
    if n_events > 0 then
      return group, n_events == n_packed and group or pack_group(id, events), fields
    end
    return group
  end
end

-- The same for a list of one SKU, as most are.
local function counted_one(id, list, stock)
  local sku = list[1]
  local of_sku = stock[sku]
  if not of_sku then
    return
  end
  local group
  if of_sku[OUT] == '' and of_sku[IN] == '' then
    group = pack('>I4I2I2I4I2', id, 1, sku, of_sku[LEFT], 0)
  else
    group = pack_group(id, {pack_counters(sku, of_sku[LEFT], of_sku[OUT], of_sku[IN])})
  end
  if not of_sku[TOUCHED] then
    return group
  end
  local fields = {list.fields[1], whole(of_sku[LEFT])}
  if of_sku[ARRIVED] then
    fields[3], fields[4] = list.fields[3], of_sku[IN]
  end
  return group, group, fields
end

-- reserve in one shard, whose keys begin at `k` and whose activities' arguments begin at `a`. `own` is the epoch of this
-- Redis; `at_ms` the time, if it is known already. With `attempts` an activity has an argument more.
local function reserve_in(keys, k, args, a, groups, gen, process, number, here, own, at_ms, attempts)
  local meta_key, calls, of_group = keys[k], keys[k + 2], attempts and 6 or 5
  local meta
  if groups == 1 then
    meta = call('HMGET', meta_key, 'epoch', 'phase', 'gen', 'seq', 'a:' .. args[a])
  else
    local wanted = {'epoch', 'phase', 'gen', 'seq'}
    for g = 1, groups do
      wanted[4 + g] = 'a:' .. args[a + of_group * (g - 1)]
    end
    meta = call('HMGET', meta_key, unpack(wanted))
  end
  local refusal = begin(meta, own, calls, gen, process, number)
  if refusal then
    return refusal
  end
  local writes, named, changed, marks, answers = {}, '', '', '', ''
  local named_count, changed_count, mark_groups = 0, 0, 0
  for g = 1, groups do
    local at = a + of_group * (g - 1)
    local id, list, moves = args[at], list_of(args[at + 1]), args[at + 2]
    local stock_key, buyers = keys[k + 1 + 2 * g], keys[k + 2 + 2 * g]
    local stock = stock_of(stock_key, list)
    if moves ~= '' then
      bring_in(moves, here, stock)
    end
    local answer, taken, blob, fresh =
      take(buyers, args[at + 3], args[at + 4] == '1', meta[4 + g] == 'live', stock, attempts, attempts and args[at + 5])
    local group, events, fields = (#list == 1 and counted_one or counted)(id, list, stock)
    if group then
      named, named_count = named .. group, named_count + 1
    end
    if events then
      local n = 4 * changed_count
      writes[n + 1], writes[n + 2], writes[n + 3], writes[n + 4] = buyers, taken, stock_key, fields
      changed, changed_count = changed .. events, changed_count + 1
    end
    if fresh > 0 then
      marks, mark_groups = marks .. pack('>I4I4B', id, fresh, 22) .. blob, mark_groups + 1
    end
    answers = answers .. answer
  end
  local seq = meta[4]
  if changed_count > 0 then
    seq = whole(seq + 1)
    append(keys[k + 1], gen, seq, mark_groups > 0 and MARKED or MOVED, mark_groups,
      marks .. count_of(changed_count) .. changed, at_ms)
    for i = 1, 4 * changed_count, 2 do
      hset(writes[i], writes[i + 1])
    end
    call('HSET', meta_key, 'seq', seq)
  end
  if attempts then
    write_attempts(attempts)
  end
  return finish(calls, process, number, gen, seq, count_of(named_count) .. named, answers)
end

-- reserve: brings in announced units, then reserves for each item in order.
-- KEYS meta, feed, calls, then per activity stock, buyers. ARGV generation, process, call number, this shard, then
-- per activity its id, its SKUs (2 bytes each), moves (SKU 2, source 1, cumulative out 8), items (user 8, mark 14),
-- and 1 if a user comes twice among them.
-- Returns 'D' generation 8, seq 8, counters, answers; or 'S', 'G' generation 8, 'R'.
local function reserve(keys, args)
  return reserve_in(keys, 1, args, 5, (#args - 4) / 5, args[1], args[2], tonumber(args[3]), tonumber(args[4]),
    own_epoch())
end

-- reserve_limited: reserve, where a user may ask for units so many times in a window (see attempts).
-- KEYS those of reserve, and the attempts last. ARGV as for reserve; after this shard how many times, and the window in
-- ms; last per activity a byte for each item, 1 if it is promised already, or nothing.
-- Returns as reserve does; to an item that may not ask, 6 and in how many ms the window ends.
local function reserve_limited(keys, args)
  local own, at_ms = own_epoch(), now_ms()
  local attempts = attempts_in(keys[#keys], tonumber(args[5]), tonumber(args[6]), at_ms)
  return reserve_in(keys, 1, args, 7, (#args - 6) / 6, args[1], args[2], tonumber(args[3]), tonumber(args[4]), own,
    at_ms, attempts)
end

-- The calls of several shards, whose arguments begin at `a`; with `max`, limited.
local function reserve_each(keys, args, a, max, window_ms)
  local own, at_ms, gen, process = own_epoch(), now_ms(), args[1], args[2]
  local replies, n, k, of_group = {}, 0, 1, max and 6 or 5
  while a <= #args do
    local groups = tonumber(args[a + 2])
    local k_after, attempts = k + 3 + 2 * groups, nil
    if max then
      attempts, k_after = attempts_in(keys[k_after], max, window_ms, at_ms), k_after + 1
    end
    local went_well, reply = pcall(reserve_in, keys, k, args, a + 3, groups, gen, process, tonumber(args[a]),
      tonumber(args[a + 1]), own, at_ms, attempts)
    -- What was raised is the text of a command's error, in later versions a table with it.
    if not went_well and type(reply) ~= 'table' then
      reply = {err = find(reply, '^%u+ ') and reply or 'ERR ' .. reply}
    end
    n = n + 1
    replies[n] = reply
    k, a = k_after, a + 3 + of_group * groups
  end
  return replies
end

-- reserve_many: reserve in several shards, one after the other and each by itself: what one cannot read, or refuses,
-- is its answer alone. A shard's writes come after all that could fail in it, as in reserve, so that a shard that fails
-- has changed nothing.
-- KEYS those of reserve, shard after shard. ARGV generation, process, then per shard its call's number, the shard, how
-- many activities, and for each of them what reserve takes.
-- Returns a list: for each shard what reserve returns, or the error.
local function reserve_many(keys, args)
  return reserve_each(keys, args, 3)
end

-- reserve_many_limited: the same as reserve_limited does it.
-- KEYS those of reserve_limited, shard after shard. ARGV generation, process, how many times, the window in ms, then per
-- shard as for reserve_many, and for each activity what reserve_limited takes.
local function reserve_many_limited(keys, args)
  return reserve_each(keys, args, 5, tonumber(args[3]), tonumber(args[4]))
end

redis.register_function('rg1_reserve', reserve)
redis.register_function('rg1_reserve_many', reserve_many)
redis.register_function('rg1_reserve_limited', reserve_limited)
redis.register_function('rg1_reserve_many_limited', reserve_many_limited)
