-- Begins an end: held, or unknown, becomes released or expired. Rule 13.
-- known '1': an unknown token is refused instead of being remembered as ended.
local epoch, token, how, shop, known = unpack(ARGV, 5, 9)

local refusal = check_fence(epoch)
if refusal then return refusal end
local h = read_hold(token)
if is_reused(h, shop, '') or (h.state == 'none' and known == '1') then return { 'unknown' } end
if h.state == 'claiming' then return { 'claim-pending' } end
if h.state == 'claimed' then return { 'ended', h.state } end
if is_ended(h) then return { 'ok', 1, answer(token, h) } end
if h.state == 'held' and how == 'expired' and now < tonumber(h.expires) then return { 'ok', 1, answer(token, h) } end

local items, units = units_of(h.lines)
if h.state == 'held' then
  local counters, bad = read_counters(h.shop, items)
  bad = bad or room_for(h.shop, items, counters, units, 1)
  if bad then return bad end
end
check_indexes(token)

if h.state == 'held' then return_units(h.shop, items, units) end
h.state = how
put_end(token, h)
return { 'ok', 0, answer(token, h) }
