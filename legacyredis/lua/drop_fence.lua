-- Removes the fence unless it is beyond epoch upto: from then on no deciding
-- step and no kill finds anything here. The history stays.
local pod, upto = ARGV[5], ARGV[6]
local old = read_fence()
if old and old[1] ~= pod then return { 'other-pod', old[1] } end
if old and tonumber(old[2]) > tonumber(upto) then return { 'stale', old } end

redis.call('DEL', FENCE)
return { 'ok' }
