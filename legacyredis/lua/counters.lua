local shop = ARGV[5]
local items = { unpack(ARGV, 6) }

local counters, bad = read_counters(shop, items)
if bad then return bad end
local values = {}
for i, item in ipairs(items) do values[i] = counters[item] end
return { 'ok', values }
