-- Gives up units for an adjustment that MySQL decides, before it does: what has
-- left the counter here, nobody sells any more. take "all": without a look at what
-- is free (MySQL decides sales); "free": as many as are free; "exact": all or none.
-- Remembered by token until it is settled, and as long after as an end record is.
local epoch, token, shop, item, units, take, content, body = unpack(ARGV, 5, 12)
local RECORD, PENDING = PREFIX .. 'adjust:' .. token, PREFIX .. 'adjusting'

local refusal = check_fence(epoch)
if refusal then return refusal end
local old = redis.call('HMGET', RECORD, 'content', 'lowered', 'free')
if old[1] and old[1] ~= '' and old[1] ~= content then return { 'reused' } end
if old[2] then return { 'ok', old[2], old[3] } end
local counters, bad = read_counters(shop, { item })
if bad then return bad end
redis.call('ZSCORE', PENDING, token) -- raises before the first write

local wanted, free = tonumber(units), counters[item]
local lowered = wanted
if take ~= 'all' then
  lowered = math.min(wanted, math.max(free, 0))
  if take == 'exact' and lowered < wanted then lowered = 0 end
end
if lowered == 0 then return { 'ok', '0', text(free) } end
bad = room_for(shop, { item }, counters, { [item] = lowered }, -1)
if bad then return bad end

redis.call('DECRBY', counter_key(shop, item), text(lowered))
redis.call('HSET', RECORD, 'content', content, 'shop', shop, 'item', item, 'lowered', text(lowered), 'free', text(free), 'body', body)
redis.call('ZADD', PENDING, text(now), token)
return { 'ok', text(lowered), text(free) }
