-- Who was seen within age, last seen first.
local age, limit = ARGV[5], ARGV[6]
local SEEN, BODY = PREFIX .. 'instances:seen', PREFIX .. 'instances'
local ids = redis.call('ZREVRANGEBYSCORE', SEEN, '+inf', text(now - tonumber(age)), 'WITHSCORES', 'LIMIT', 0, limit)
local found = {}
for i = 1, #ids, 2 do
  local body = redis.call('HGET', BODY, ids[i])
  if body then found[#found + 1] = { ids[i], ids[i + 1], body } end
end
return { 'ok', text(now), found }
