-- Moves a counter by units if it is still at from; an empty from: if there is none.
local epoch, shop, item, from, units = unpack(ARGV, 5, 9)

if being_rebuilt() then return { 'rebuilding' } end
local refusal = check_fence(epoch)
if refusal then return refusal end
local key = counter_key(shop, item)
local counters, bad = read_counters(shop, { item })
if bad and bad[1] == 'not-loaded' then
  if from ~= '' then return { 'ok', 0 } end
  redis.call('SET', key, units)
  return { 'ok', 1 }
end
if bad then return bad end
if text(counters[item]) ~= from then return { 'ok', 0 } end
bad = room_for(shop, { item }, counters, { [item] = tonumber(units) }, 1)
if bad then return bad end
redis.call('INCRBY', key, units)
return { 'ok', 1 }
