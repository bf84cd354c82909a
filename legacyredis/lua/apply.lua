-- Carries one fact. Its epoch is "0": a buyer was told already. Only a repair,
-- which nobody was told of, names the epoch that it was planned for.
local token, epoch = ARGV[5], ARGV[13]
local f = {
  shop = ARGV[6], lines = ARGV[7], state = ARGV[8], expires = ARGV[9], granted = ARGV[10], attempt = ARGV[11], part = ARGV[12],
}

if being_rebuilt() then return { 'rebuilding' } end
local refusal = check_fence(epoch)
if refusal then return refusal end
local h = read_hold(token)
if is_reused(h, f.shop, f.lines) then return { 'reused' } end
local after, items, units = plan_fact(h, f)
if after and after.state == 'claimed' and after.lines == '' then return { 'no-lines' } end
if #items > 0 then
  local counters, bad = read_counters(after.shop, items)
  bad = bad or room_for(after.shop, items, counters, units, 1)
  if bad then return bad end
end
check_indexes(token)

local now_is = write_fact(token, h, f, after, items, units, false)
return { 'ok', after and 0 or 1, answer(token, now_is) }
