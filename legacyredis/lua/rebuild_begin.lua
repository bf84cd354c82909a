-- Begins a rebuild: the fence goes, so that nothing is decided here any more, and
-- the marker comes, so that no fact is taken and no fence is written. truth is
-- the epoch at which MySQL decides; a fence that is as new is no Redis to rebuild.
-- truth 0: only a rebuild that was begun before, and never finished, goes on.
local owner, lease, truth, channel = unpack(ARGV, 5, 8)
local pod = ARGV[9]

local old = read_fence()
if old and old[1] ~= pod then return { 'other-pod', old[1] } end
if old and (truth == '0' or tonumber(old[2]) >= tonumber(truth)) then return { 'stale', old } end
local m = redis.call('HMGET', REBUILD, 'owner', 'until_ms', 'truth')
if m[1] and m[1] ~= owner and tonumber(m[2]) > now then return { 'rebuild-taken', m[1] } end
if truth == '0' then
  if not m[3] then return { 'rebuild-lost' } end
  truth = m[3]
end

redis.call('DEL', FENCE, REBUILD)
redis.call('HSET', REBUILD, 'owner', owner, 'until_ms', text(now + tonumber(lease)), 'truth', truth, 'steps', '0', 'answer', '0')
redis.call('PUBLISH', channel, '0')
return { 'ok', truth }
