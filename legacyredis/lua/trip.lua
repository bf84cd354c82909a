-- The kill, rule 4: applies the facts and sets the fence, in this one script.
-- A fact whose counter is missing or broken is recorded without it: no vote is
-- granted on such a counter, and one lost item must not stop the kill. A fact
-- whose token stands for other lines is left out. Both are reported.
local FIRST = 14 -- the first fact in ARGV
local f = { unpack(ARGV, 5, 13) }

local old = read_fence()
if old and old[1] ~= f[1] then return { 'other-pod', old[1] } end
if old and tonumber(old[2]) >= tonumber(f[2]) then return { 'stale', old } end
check_history()
check_indexes('')

local todo, uncounted, reused = {}, {}, {}
for i = FIRST, #ARGV do
  local token, shop, lines, state, expires, granted, attempt =
    string.match(ARGV[i], '^([^|]+)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)$')
  local fact = { shop = shop, lines = lines, state = state, expires = expires, granted = granted, attempt = attempt }
  local h = read_hold(token)
  if is_reused(h, shop, lines) then
    reused[#reused + 1] = token
  else
    local after, sign = plan_fact(h, state)
    local skip = false
    if sign ~= 0 then
      local owner = h.shop ~= '0' and h.shop or shop
      local items, units = units_of(h.lines ~= '' and h.lines or lines)
      local counters, bad = read_counters(owner, items)
      bad = bad or room_for(owner, items, counters, units, sign)
      if bad then
        skip = true
        uncounted[#uncounted + 1] = token
      end
    end
    todo[#todo + 1] = { token, h, fact, after, sign, skip }
  end
end

for _, t in ipairs(todo) do write_fact(unpack(t, 1, 6)) end
write_fence(f)
return { 'ok', uncounted, reused }
