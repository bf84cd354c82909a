-- The counters of a shop's items and all live holds that have one of them, at one
-- moment. Refused when there are more than bound holds in all: Redis serves nobody
-- else meanwhile.
local shop, bound = ARGV[5], tonumber(ARGV[6])
local items, wanted = { unpack(ARGV, 7) }, {}
for _, item in ipairs(items) do wanted[item] = true end

local live = redis.call('ZCARD', HOLDS) + redis.call('ZCARD', CLAIMING)
if live > bound then return { 'too-many', live } end
local counters, bad = read_counters(shop, items)
if bad then return bad end
local values = {}
for i, item in ipairs(items) do values[i] = counters[item] end

local found = { {}, {} }
for i, index in ipairs({ HOLDS, CLAIMING }) do
  for _, token in ipairs(redis.call('ZRANGE', index, 0, -1)) do
    local h = read_hold(token)
    if is_live(h) and h.shop == shop then
      local mine, units = units_of(lines_out(h))
      for _, item in ipairs(mine) do
        if wanted[item] then
          local one = found[i]
          one[#one + 1] = token
          one[#one + 1] = item
          one[#one + 1] = text(units[item])
        end
      end
    end
  end
end
return { 'ok', values, found[1], found[2] }
