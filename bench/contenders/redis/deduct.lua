-- The articles' script: refuse who bought, refuse when nothing is left, else deduct and mark for half an hour.
-- KEYS[1] stock of the activity, KEYS[2] mark of the user. Returns -1 bought already, 0 sold out, 1 deducted.
if redis.call('exists', KEYS[2]) == 1 then
  return -1
end
local stock = tonumber(redis.call('get', KEYS[1]))
if stock == nil or stock <= 0 then
  return 0
end
redis.call('decrby', KEYS[1], 1)
redis.call('setex', KEYS[2], 1800, '1')
return 1
