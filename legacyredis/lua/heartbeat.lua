-- An instance says that it lives; those silent for longer than keep are forgotten.
local id, body, keep = ARGV[5], ARGV[6], tonumber(ARGV[7])
local SEEN, BODY = PREFIX .. 'instances:seen', PREFIX .. 'instances'
redis.call('HLEN', BODY) -- raises before the first write
local gone = redis.call('ZRANGEBYSCORE', SEEN, '-inf', text(now - keep), 'LIMIT', 0, 100)

redis.call('ZADD', SEEN, text(now), id)
redis.call('HSET', BODY, id, body)
for _, other in ipairs(gone) do
  if other ~= id then
    redis.call('ZREM', SEEN, other)
    redis.call('HDEL', BODY, other)
  end
end
return { 'ok' }
