-- wrk's side: wrk … -s seckill.lua URL -- SHAPE DEPTH FIRST_USER
-- SHAPE: "nginx" or "fastapi", how a purchase is written. DEPTH: requests in one write. FIRST_USER: 0 = a few
-- thousand users take turns and their requests are made beforehand; otherwise each request names the next user.
local POOL = 4096
local shape, depth, first_user
local pool, turn

local function one(user)
  if shape == "nginx" then
    return wrk.format("GET", "/api/seckill?activity=1&user=" .. user)
  end
  return wrk.format("POST", "/api/seckill",
    { ["Content-Type"] = "application/json", ["User-Id"] = tostring(user) }, '{"activity_id":1}')
end

local function many(user)
  local requests = {}
  for i = 0, depth - 1 do requests[i + 1] = one(string.format("%.0f", user + i)) end
  return table.concat(requests)
end

function init(args)
  shape, depth, first_user = args[1], tonumber(args[2]), tonumber(args[3])
  turn = 0
  if first_user == 0 then
    pool = {}
    for i = 1, math.max(1, math.floor(POOL / depth)) do pool[i] = many(i * depth) end
  end
end

function request()
  turn = turn + 1
  if pool then return pool[turn % #pool + 1] end
  return many(first_user + turn * depth)
end

-- One line for the harness; times in microseconds.
function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\nharness {"requests": %d, "duration_us": %d, "p50_us": %d, "p99_us": %d, "connect": %d, "read": %d, "write": %d, '
      .. '"status": %d, "timeout": %d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.connect, errors.read, errors.write, errors.status, errors.timeout))
end
