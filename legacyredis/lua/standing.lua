-- The counters of a shop's items and all live holds that have one of them, at one
-- moment. Refused when there are more than most_holds in all, and given up at more
-- than most_lines of them: Redis serves nobody else meanwhile.
local shop, most_holds, most_lines = ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local items, wanted = { unpack(ARGV, 8) }, {}
for _, item in ipairs(items) do wanted[item] = true end

local live = redis.call('ZCARD', HOLDS) + redis.call('ZCARD', CLAIMING)
if live > most_holds then return { 'too-many', live .. ' live holds' } end
local counters, bad = read_counters(shop, items)
if bad then return bad end
local values = {}
for i, item in ipairs(items) do values[i] = counters[item] end

local found, lines = { {}, {} }, 0
for i, index in ipairs({ HOLDS, CLAIMING }) do
  for _, token in ipairs(redis.call('ZRANGE', index, 0, -1)) do
    local h = read_hold(token)
    local _, separators = string.gsub(h.lines, ':', '')
    lines = lines + separators / 2
    if lines > most_lines then return { 'too-many', 'more than ' .. most_lines .. ' lines in ' .. live .. ' live holds' } end
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
