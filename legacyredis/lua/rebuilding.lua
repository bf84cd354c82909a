-- Shared by the steps of a rebuild after the first. They are numbered, and the
-- marker counts them in the same change as what they write: a Redis that lost
-- steps meanwhile (restarted with older data, failed over) does not have the count
-- that the next one expects, and a step whose answer was lost is not done twice.
local OWNER, LEASE, STEP = ARGV[5], ARGV[6], ARGV[7]

-- my_turn returns nil when this step is the next one, else what to answer.
local function my_turn()
  local m = redis.call('HMGET', REBUILD, 'owner', 'steps', 'answer')
  if not m[1] then return { 'rebuild-lost' } end
  if m[1] ~= OWNER then return { 'rebuild-taken', m[1] } end
  if read_fence() then return { 'rebuild-lost' } end
  if m[2] == STEP then return { 'ok', m[3] } end
  if tonumber(m[2]) + 1 ~= tonumber(STEP) then return { 'rebuild-lost' } end
  return nil
end

local function turn_done(answer)
  redis.call('HSET', REBUILD, 'steps', STEP, 'answer', answer, 'until_ms', text(now + tonumber(LEASE)))
  return { 'ok', answer }
end
