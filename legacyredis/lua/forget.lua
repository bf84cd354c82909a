local id = ARGV[5]
redis.call('HLEN', PREFIX .. 'instances') -- raises before the first write
redis.call('ZREM', PREFIX .. 'instances:seen', id)
redis.call('HDEL', PREFIX .. 'instances', id)
return { 'ok' }
