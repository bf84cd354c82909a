-- Begins a claim: held becomes claiming, which neither expires nor can be released. Rule 12.
-- With wanted, lines in any order, a part of the hold is claimed, and the rest
-- goes back to the counters in the same step.
local epoch, token, shop, wanted = unpack(ARGV, 5, 8)

local function no_part(place, problem)
  return nil, { 'no-part', (string.gsub(place, '(%d+):(%d+)', 'item %1 at group %2')), problem }
end

-- part_of returns wanted in the order of lines, '' for all of them, and nil and
-- the reason when it is no part of them.
local function part_of(lines, wanted)
  local units = {}
  for place, quantity in string.gmatch(wanted, '(%d+:%d+):(%d+)') do
    units[place] = (units[place] or 0) + tonumber(quantity)
  end
  local part = {}
  for place, quantity in string.gmatch(lines, '(%d+:%d+):(%d+)') do
    local want = units[place]
    units[place] = nil
    if want and want > tonumber(quantity) then
      return no_part(place, 'asks for ' .. text(want) .. ' units, and the hold has ' .. quantity)
    end
    if want then part[#part + 1] = place .. ':' .. text(want) end
  end
  local other = next(units)
  if other then return no_part(other, 'is not in the hold: a claim takes a part of it') end
  local claimed = table.concat(part, ',')
  return claimed ~= lines and claimed or ''
end

local refusal = check_fence(epoch)
if refusal then return refusal end
local h = read_hold(token)
if h.state == 'none' or is_reused(h, shop, '') then return { 'unknown' } end
if h.state == 'released' or h.state == 'expired' then return { 'ended', h.state } end
-- An end record of a hold that was never known here has no lines to compare with.
local part, bad_part = h.part, nil
if h.lines ~= '' then part, bad_part = part_of(h.lines, wanted) end
if bad_part then return bad_part end
if h.state ~= 'held' then
  if part ~= h.part then return { 'reused' } end
  return { 'ok', 1, answer(token, h) }
end
local items, units = units_back(h.lines, part ~= '' and part or h.lines)
if #items > 0 then
  local counters, bad = read_counters(h.shop, items)
  bad = bad or room_for(h.shop, items, counters, units, 1)
  if bad then return bad end
end
check_indexes(token)

return_units(h.shop, items, units)
h.state, h.firm, h.part = 'claiming', '1', part
redis.call('HSET', hold_key(token), 'state', h.state, 'firm', h.firm, 'claimed', h.part)
redis.call('ZADD', CLAIMING, text(now), token)
redis.call('ZREM', HOLDS, token)
return { 'ok', 0, answer(token, h) }
