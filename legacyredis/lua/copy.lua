-- Writes a grant of MySQL's: firm, expiry as given, counters may go below zero.
-- The expiry of a hold that is there moves forward, never back.
-- Rules 7, 10, 15. "would" keeps what a vote would have said, for a repeated copy.
local epoch, token, shop, lines, expires, granted, attempt = unpack(ARGV, 5, 11)

local refusal = check_fence(epoch)
if refusal then return refusal end
local h = read_hold(token)
if is_reused(h, shop, lines) then return { 'reused' } end
if is_ended(h) then return { 'ended', h.state } end
local items, units = units_of(lines)
local counters, bad = read_counters(shop, items)
if bad then return bad end
check_indexes(token)

if is_live(h) then
  make_firm(token, h)
  extend_to(token, h, expires)
  return { 'ok', 1, answer(token, h), per_line(lines, counters), h.would == '0' and 0 or 1 }
end

bad = room_for(shop, items, counters, units, -1)
if bad then return bad end
local would = 1
for _, item in ipairs(items) do
  if counters[item] < units[item] then would = 0 end
end
h = {
  state = 'held', shop = shop, lines = lines, expires = expires, granted = granted == '0' and text(now) or granted,
  attempt = attempt, firm = '1', would = text(would), part = '',
}
take_units(shop, items, units, counters)
put_hold(token, h)
return { 'ok', 0, answer(token, h), per_line(lines, counters), would }
