-- One purchase: GET /api/seckill?activity=1&user=42. The shared dictionary remembers which activities are sold out.
-- Redis is spoken to over a plain cosocket: one EVALSHA, one integer back, the connection goes back to the pool.
local _M = {}

local sold_out = ngx.shared.sold_out
local host, port, sha

local SOLD_OUT = '{"code":400,"message":"sold out"}'
local BOUGHT = '{"code":400,"message":"bought already"}'
local QUEUED = '{"code":200,"message":"queued"}'

function _M.configure(redis_host, redis_port, script_sha)
  host, port, sha = redis_host, redis_port, script_sha
end

local function argument(text)
  return "$" .. #text .. "\r\n" .. text .. "\r\n"
end

-- The script's answer, or nil and why.
local function deduct(activity, user)
  local redis = ngx.socket.tcp()
  redis:settimeout(3000)
  local ok, err = redis:connect(host, port)
  if not ok then return nil, err end
  ok, err = redis:send("*5\r\n$7\r\nEVALSHA\r\n" .. argument(sha) .. "$1\r\n2\r\n"
    .. argument("seckill:stock:" .. activity)
    .. argument("seckill:bought:" .. activity .. ":" .. user))
  if not ok then return nil, err end
  local line
  line, err = redis:receive()
  if not line then return nil, err end
  redis:setkeepalive(60000, 256)
  if line:sub(1, 1) ~= ":" then return nil, line end
  return tonumber(line:sub(2))
end

function _M.buy()
  local activity, user = ngx.var.arg_activity, ngx.var.arg_user
  if not activity or not user then return ngx.exit(400) end
  if sold_out:get(activity) then return ngx.print(SOLD_OUT) end
  local answer, err = deduct(activity, user)
  if not answer then
    ngx.log(ngx.ERR, "redis: ", err)
    return ngx.exit(503)
  end
  if answer == 1 then return ngx.print(QUEUED) end
  if answer == -1 then return ngx.print(BOUGHT) end
  sold_out:set(activity, true)
  return ngx.print(SOLD_OUT)
end

function _M.forget()
  sold_out:flush_all()
  return ngx.print("{}")
end

return _M
