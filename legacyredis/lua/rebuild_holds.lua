-- Writes holds as MySQL has them, live ones firm, ended ones as end records, and
-- leaves the counters alone: they come last, as a whole.
local answered = my_turn()
if answered then return answered end

for i = 8, #ARGV do
  local token, shop, lines, state, expires, granted, attempt, part =
    string.match(ARGV[i], '^([^|]+)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)$')
  local h = {
    state = state, shop = shop, lines = lines, expires = expires, granted = granted, attempt = attempt,
    firm = '1', would = '1', part = part,
  }
  if state == 'held' then put_hold(token, h) else put_end(token, h) end
end
return turn_done('0')
