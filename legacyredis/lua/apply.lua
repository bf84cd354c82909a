-- Carries one fact. No epoch: a buyer was told already.
local token = ARGV[5]
local f = { shop = ARGV[6], lines = ARGV[7], state = ARGV[8], expires = ARGV[9], granted = ARGV[10], attempt = ARGV[11] }

local h = read_hold(token)
if is_reused(h, f.shop, f.lines) then return { 'reused' } end
local state, sign = plan_fact(h, f.state)
if sign ~= 0 then
  local shop = h.shop ~= '0' and h.shop or f.shop
  local items, units = units_of(h.lines ~= '' and h.lines or f.lines)
  if #items == 0 or shop == '0' then return { 'no-lines' } end
  local counters, bad = read_counters(shop, items)
  bad = bad or room_for(shop, items, counters, units, sign)
  if bad then return bad end
end
check_indexes(token)

write_fact(token, h, f, state, sign, false)
return { 'ok', state == '' and 1 or 0, answer(token, h) }
