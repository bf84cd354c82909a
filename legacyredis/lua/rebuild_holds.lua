-- Writes holds as MySQL has them, live ones firm, ended ones as end records, and
-- leaves the counters alone: they come last, as a whole. A claim that is marked, and
-- that the ledger could not take, stays marked.
local answered = my_turn()
if answered then return answered end

for i = 8, #ARGV do
  local token, shop, lines, state, expires, granted, attempt, part =
    string.match(ARGV[i], '^([^|]+)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)$')
  local h = {
    state = state, shop = shop, lines = lines, expires = expires, granted = granted, attempt = attempt,
    firm = '1', would = '1', part = part,
  }
  if state == 'held' then
    put_hold(token, h)
  elseif state == 'claiming' then
    put_hold(token, h)
    redis.call('HSET', hold_key(token), 'claimed', part)
    redis.call('ZADD', CLAIMING, text(now), token)
    redis.call('ZREM', HOLDS, token)
  else
    put_end(token, h)
  end
end
return turn_done('0')
