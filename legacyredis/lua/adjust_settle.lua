-- Follows MySQL's decision: afterwards the counter has changed by "changed" for this
-- token, whatever was given up before. Once. A counter that is not loaded is left
-- alone: whoever loads it takes it from the ledger, which has the change.
local token, shop, item, changed, content = unpack(ARGV, 5, 9)
local RECORD, PENDING = PREFIX .. 'adjust:' .. token, PREFIX .. 'adjusting'

if being_rebuilt() then return { 'rebuilding' } end
local old = redis.call('HMGET', RECORD, 'content', 'lowered', 'settled')
if old[1] and old[1] ~= content then return { 'reused' } end
if old[3] then return { 'ok', 0, 1 } end
local units = tonumber(changed) + tonumber(old[2] or '0')
local counters, bad = read_counters(shop, { item })
local loaded = 1
if bad and bad[1] == 'not-loaded' then
  loaded, units = 0, 0
elseif bad then
  return bad
else
  bad = room_for(shop, { item }, counters, { [item] = units }, 1)
  if bad then return bad end
end
redis.call('ZSCORE', PENDING, token) -- raises before the first write

if units ~= 0 then redis.call('INCRBY', counter_key(shop, item), text(units)) end
redis.call('HSET', RECORD, 'content', content, 'lowered', old[2] or '0', 'free', '0', 'settled', changed)
redis.call('PEXPIRE', RECORD, text(RETENTION))
redis.call('ZREM', PENDING, token)
return { 'ok', 1, loaded }
