-- Grants all lines or nothing. Rules 1, 6, 9, 11.
local epoch, attempt, token, shop, lines, ttl = unpack(ARGV, 5, 10)

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
  for _, item in ipairs(items) do
    if counters[item] < 0 then return { 'try-again', item } end
  end
  -- Another attempt is told yes: from now on the first one may not take it back.
  if h.attempt ~= attempt then make_firm(token, h) end
  return { 'ok', 1, answer(token, h), per_line(lines, counters) }
end

local short = shortages(lines, counters)
if #short > 0 then return { 'short', short } end

h = {
  state = 'held', shop = shop, lines = lines, expires = text(now + tonumber(ttl)), granted = text(now),
  attempt = attempt, firm = attempt == '0' and '1' or '0', would = '1', part = '',
}
take_units(shop, items, units, counters)
put_hold(token, h)
return { 'ok', 0, answer(token, h), per_line(lines, counters) }
