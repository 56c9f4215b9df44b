-- Rates that all gateways share. What a gateway leaves of its share of a rate, it lends to the rate's pool here; who needs
-- more than its share takes slices out of it. A token that is in a pool was taken out of some gateway's bucket before:
-- nothing is made here, so that nothing that is lost, late or wrong here can raise a rate.
--
-- Four keys for the installation, none of which needs a shard to be open: the gateways by when each was last heard of,
-- the number of each one's last call, the rates that somebody asked for by when, and what is in their pools. A rate that
-- nobody asks for any more has no pool.

-- Names in a pool's list at most: what addresses can make gateways ask for.
local WANTED_MAX = 1024
-- Names told at a time.
local TOLD_MAX = 256
-- A field that is too long for the compact form of a hash, where a look-up walks through all the others.
local LONG_NAME = 'what lies in the pool of each rate that some gateway wants more of, in tokens'
-- Everything here is of the last seconds; then the keys go by themselves.
local KEPT_MS = 10000

-- Who was not heard of within that time; and who is said to have been later than now, by a clock that went back.
local function silent_since(key, now, within_ms)
  local silent = redis.call('ZRANGEBYSCORE', key, '-inf', '(' .. (now - within_ms))
  for _, ahead in ipairs(redis.call('ZRANGEBYSCORE', key, '(' .. (now + within_ms), '+inf')) do
    silent[#silent + 1] = ahead
  end
  return silent
end

local function forget(by_time, by_name, names)
  for _, name in ipairs(names) do
    redis.call('ZREM', by_time, name)
    redis.call('HDEL', by_name, name)
  end
end

-- Which of the names somebody wants, by index; those of them that are wanted from now on, too, if there is room for them.
local function note_wanted(key, now, names, wants)
  local is_wanted, room, noted = {}, WANTED_MAX - redis.call('ZCARD', key), {}
  for at = 1, #names, 4000 do
    for i, score in ipairs(redis.call('ZMSCORE', key, unpack(names, at, math.min(at + 3999, #names)))) do
      is_wanted[at + i - 1] = score and true
    end
  end
  for i = 1, #names do
    if wants[i] > 0 and (is_wanted[i] or room > 0) then
      room = room - (is_wanted[i] and 0 or 1)
      is_wanted[i] = true
      noted[#noted + 1], noted[#noted + 2] = now, names[i]
    end
  end
  for at = 1, #noted, 4000 do
    redis.call('ZADD', key, unpack(noted, at, math.min(at + 3999, #noted)))
  end
  return is_wanted
end

-- What each is granted, after its pool was given what there is; ARGV name, give, want, most of each from the fifth on.
local function exchange(keys, now, args)
  local names, wants = {}, {}
  for i = 5, #args, 4 do
    names[#names + 1], wants[#wants + 1] = args[i], tonumber(args[i + 2])
  end
  if #names == 0 then
    return {}
  end
  local is_wanted, pools = note_wanted(keys[3], now, names, wants), hmget(keys[4], names)
  local granted, left = {}, {}
  for i = 1, #names do
    granted[i] = 0
    if is_wanted[i] then
      local give, most = tonumber(args[4 * i + 2]), tonumber(args[4 * i + 4])
      local pool = math.max(0, math.min((tonumber(pools[i]) or 0) + give, most))
      granted[i] = math.min(wants[i], pool)
      left[#left + 1], left[#left + 2] = names[i], pool - granted[i]
    end
  end
  hset(keys[4], left)
  return granted
end

-- What is wanted, the last asked for first, each name with what is in its pool.
local function wanted(keys)
  local names, told = redis.call('ZREVRANGE', keys[3], 0, TOLD_MAX - 1), {}
  local pools = #names > 0 and hmget(keys[4], names)
  for i = 1, #names do
    told[2 * i - 1], told[2 * i] = names[i], tonumber(pools[i]) or 0
  end
  return told
end

-- slices: KEYS gateways, calls, wanted, pools. ARGV gateway, number of its call, milliseconds after which a gateway and a
-- wish are forgotten; then for each rate name, give, want, most. Returns how many gateways live, what is granted in that
-- order, and the names wanted by anybody, each with what is in its pool. A call that was executed before, or that comes
-- after a later one, says no more than how many live.
local function slices(keys, args)
  bind()
  local time = redis.call('TIME')
  local now = time[1] * 1000 + floor(time[2] / 1000)
  local gateway, number = args[1], tonumber(args[2])
  local silent = silent_since(keys[1], now, tonumber(args[3]))
  local last = tonumber(redis.call('HGET', keys[2], gateway)) or 0
  local unasked = silent_since(keys[3], now, tonumber(args[4]))
  redis.call('HSETNX', keys[4], LONG_NAME, '')
  forget(keys[1], keys[2], silent)
  forget(keys[3], keys[4], unasked)
  redis.call('ZADD', keys[1], now, gateway)
  local granted, told = {}, {}
  if number > last then
    redis.call('HSET', keys[2], gateway, number)
    granted, told = exchange(keys, now, args), wanted(keys)
  end
  for _, key in ipairs(keys) do
    redis.call('PEXPIRE', key, KEPT_MS)
  end
  return {redis.call('ZCARD', keys[1]), granted, told}
end

redis.register_function('rg1_slices', slices)
