-- Sets counters from pairs of item and units: new ones only, or all with overwrite.
local shop, overwrite = ARGV[5], ARGV[6]
local loaded = 0
for i = 7, #ARGV, 2 do
  local key = counter_key(shop, ARGV[i])
  if overwrite == '1' then
    redis.call('SET', key, ARGV[i + 1])
    loaded = loaded + 1
  elseif redis.call('SETNX', key, ARGV[i + 1]) == 1 then
    loaded = loaded + 1
  end
end
return { 'ok', loaded }
