-- Takes back what was given up for an adjustment that MySQL has not decided and will not.
local token, shop, item, content = unpack(ARGV, 5, 8)
local RECORD, PENDING = PREFIX .. 'adjust:' .. token, PREFIX .. 'adjusting'

if being_rebuilt() then return { 'rebuilding' } end
local old = redis.call('HMGET', RECORD, 'content', 'lowered', 'settled')
if not old[2] or old[3] or old[1] ~= content then return { 'ok' } end
local counters, bad = read_counters(shop, { item })
bad = bad or room_for(shop, { item }, counters, { [item] = tonumber(old[2]) }, 1)
if bad then return bad end
redis.call('ZSCORE', PENDING, token) -- raises before the first write

redis.call('INCRBY', counter_key(shop, item), old[2])
redis.call('DEL', RECORD)
redis.call('ZREM', PENDING, token)
return { 'ok' }
