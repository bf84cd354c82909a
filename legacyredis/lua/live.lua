-- One page of an index, with the holds it names.
local index, cursor, count = ARGV[5], ARGV[6], ARGV[7]

local page = redis.call('ZSCAN', PREFIX .. index, cursor, 'COUNT', count)
local found = {}
for i = 1, #page[2], 2 do
  local token = page[2][i]
  local h = read_hold(token)
  if is_live(h) then found[#found + 1] = answer(token, h) end
end
return { 'ok', page[1], found }
