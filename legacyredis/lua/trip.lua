-- The kill, rule 4: applies the facts and sets the fence, in this one script.
-- A fact whose counter is missing or broken is recorded without it: no vote is
-- granted on such a counter, and one lost item must not stop the kill. A fact
-- whose token stands for other lines is left out. Both are reported.
local FIRST = 14 -- the first fact in ARGV
local f = { unpack(ARGV, 5, 13) }

local old = read_fence()
if not old or being_rebuilt() then return { 'no-fence' } end -- it lost its data, or is not filled yet
if old[1] ~= f[1] then return { 'other-pod', old[1] } end
if tonumber(old[2]) >= tonumber(f[2]) then return { 'stale', old } end
check_history()
check_indexes('')

local todo, uncounted, reused = {}, {}, {}
for i = FIRST, #ARGV do
  local token, shop, lines, state, expires, granted, attempt, part =
    string.match(ARGV[i], '^([^|]+)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)$')
  local fact = { shop = shop, lines = lines, state = state, expires = expires, granted = granted, attempt = attempt, part = part }
  local h = read_hold(token)
  if is_reused(h, shop, lines) then
    reused[#reused + 1] = token
  else
    local after, items, units = plan_fact(h, fact)
    local skip = false
    if #items > 0 then
      local counters, bad = read_counters(after.shop, items)
      bad = bad or room_for(after.shop, items, counters, units, 1)
      if bad then
        skip = true
        uncounted[#uncounted + 1] = token
      end
    end
    todo[#todo + 1] = { token = token, h = h, fact = fact, after = after, items = items, units = units, skip = skip }
  end
end

for _, t in ipairs(todo) do write_fact(t.token, t.h, t.fact, t.after, t.items, t.units, t.skip) end
write_fence(f)
return { 'ok', uncounted, reused }
