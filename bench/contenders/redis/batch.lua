#!lua name=bare_batch
-- A batch of reservations without any of the stock protocol's rules: what the work itself costs.
-- KEYS stock, buyers, feed. ARGV items (user 8, mark 14).
redis.register_function('bare_batch', function(keys, args)
  local items, n = args[1], #args[1] / 22
  local flat, users = {struct.unpack(string.rep('c8c14', n), items)}, {}
  flat[#flat] = nil
  for i = 1, n do
    users[i] = flat[2 * i - 1]
  end
  local held = redis.call('HMGET', keys[2], unpack(users))
  local free = tonumber(redis.call('HGET', keys[1], 'free:1'))
  for i = 1, n do
    local _, _, q1, q2 = string.byte(flat[2 * i], 9, 12)
    if not held[i] and free >= q1 * 256 + q2 then
      free = free - q1 * 256 - q2
    end
  end
  redis.call('XADD', keys[3], '*', 'e', items)
  redis.call('HSET', keys[2], unpack(flat))
  redis.call('HSET', keys[1], 'free:1', free)
  return 'ok'
end)
