-- How many purchases of one user may ask the shards for units in a window of time. All of a user's purchases, in every
-- activity and through every gateway, ask in his one shard, so that what is counted here is all there is. A hash holds
-- the window's users, each with the numbers of the orders that were let ask (8 bytes each, so that one that asks again
-- is not counted again), and the window's number. Windows are fixed ones by Redis's clock, counted from 1970. The hash
-- belongs to no shard though it carries its tag: recoveries do not touch it, and it goes by itself.

-- The field of the window's number; users are 8 bytes.
local WINDOW = 'w'

-- What one call knows, and changes, of the attempts in a shard.
local function attempts_in(key, max, window_ms, at_ms)
  return {
    key = key, bytes_max = 8 * max, window_ms = window_ms, at_ms = at_ms, window = floor(at_ms / window_ms),
    orders = {}, let_ask = {}, n = 0
  }
end

-- Reads what these users have asked for in this window. What an earlier group of the call let ask is newer.
local function read_attempts(attempts, users, n)
  local fields = {WINDOW}
  for i = 1, n do
    fields[i + 1] = users[i]
  end
  local values, orders = hmget(attempts.key, fields), attempts.orders
  attempts.stored = tonumber(values[1] or nil)
  -- A clock that went back over the end of a window does not begin the last one anew.
  if attempts.stored == attempts.window + 1 then
    attempts.window = attempts.stored
  end
  if attempts.stored == attempts.window then
    for i = 1, n do
      local user = users[i]
      orders[user] = orders[user] or values[i + 1] or nil
    end
  end
end

-- Whether a user's order may ask for units; from then on it may in this window.
local function may_ask(attempts, user, order)
  local orders = attempts.orders[user] or ''
  for at = 1, #orders, 8 do
    if sub(orders, at, at + 7) == order then
      return true
    end
  end
  if #orders >= attempts.bytes_max then
    return false
  end
  attempts.orders[user], attempts.n = orders .. order, attempts.n + 1
  attempts.let_ask[attempts.n] = user
  return true
end

-- The answer to an item that may not: in how many milliseconds its window ends.
local function too_often(attempts)
  return pack('>BI4', 6, (attempts.window + 1) * attempts.window_ms - attempts.at_ms)
end

-- Writes who was let ask. A hash of an earlier window is dropped as a whole, by another thread of Redis; if nobody asks
-- any more it expires.
local function write_attempts(attempts)
  if attempts.n == 0 then
    return
  end
  local key, fields, is_new = attempts.key, {}, attempts.stored ~= attempts.window
  for i = 1, attempts.n do
    local user = attempts.let_ask[i]
    fields[2 * i - 1], fields[2 * i] = user, attempts.orders[user]
  end
  if is_new then
    call('UNLINK', key)
    fields[#fields + 1], fields[#fields + 2] = WINDOW, whole(attempts.window)
  end
  hset(key, fields)
  if is_new then
    call('PEXPIREAT', key, whole((attempts.window + 2) * attempts.window_ms))
  end
end

