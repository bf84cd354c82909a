-- Compare-and-set (mode "set": the epoch must still be from, 0 = none yet) or
-- raise (mode "raise": only upwards). A store without a fence is not raised: it
-- was never initialized, or lost its data, and that must not be painted over.
local mode, from = ARGV[5], ARGV[6]
local f = { unpack(ARGV, 7, 15) }

local old = read_fence()
if old and old[1] ~= f[1] then return { 'other-pod', old[1] } end
if mode == 'set' then
  if not old and (from ~= '0' or being_rebuilt()) then return { 'no-fence' } end
  if old and old[2] ~= from then return { 'stale', old } end
else
  if not old then return { 'no-fence' } end
  if tonumber(old[2]) >= tonumber(f[2]) then return { 'ok', old } end
end
check_history()

write_fence(f)
return { 'ok', read_fence() }
