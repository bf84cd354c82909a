-- Adjustments that units were given up for at least age ago, and that are not settled.
local age, limit = ARGV[5], ARGV[6]
local found = {}
for _, token in ipairs(redis.call('ZRANGEBYSCORE', PREFIX .. 'adjusting', '-inf', text(now - tonumber(age)), 'LIMIT', 0, limit)) do
  local r = redis.call('HMGET', PREFIX .. 'adjust:' .. token, 'body', 'lowered', 'free')
  if r[1] then found[#found + 1] = { r[1], r[2], r[3] } end
end
return { 'ok', found }
