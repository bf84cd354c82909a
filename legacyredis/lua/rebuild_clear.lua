-- Removes one page of what the pod has here: holds, end records, adjustments and
-- their indexes. Counters are overwritten later; the fence's history and the
-- instances stay.
local cursor, count = ARGV[8], ARGV[9]
local answered = my_turn()
if answered then return answered end

local page = redis.call('SCAN', cursor, 'COUNT', count)
local function begins(key, with) return string.sub(key, 1, #with) == with end
for _, key in ipairs(page[2]) do
  if begins(key, PREFIX .. 'hold:') or begins(key, PREFIX .. 'adjust:') then redis.call('UNLINK', key) end
end
redis.call('UNLINK', HOLDS, CLAIMING, PREFIX .. 'owed', PREFIX .. 'adjusting')
return turn_done(page[1])
