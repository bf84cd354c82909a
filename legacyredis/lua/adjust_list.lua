-- Adjustments that units were given up for at least age ago, and that are not
-- settled; one page of them, and how many entries that page has.
local age, skip, limit = ARGV[5], ARGV[6], ARGV[7]
local found = {}
local page = redis.call('ZRANGEBYSCORE', PREFIX .. 'adjusting', '-inf', text(now - tonumber(age)), 'LIMIT', skip, limit)
for _, token in ipairs(page) do
  local r = redis.call('HMGET', PREFIX .. 'adjust:' .. token, 'body', 'lowered', 'free')
  if r[1] then found[#found + 1] = { r[1], r[2], r[3] } end
end
return { 'ok', #page, found }
