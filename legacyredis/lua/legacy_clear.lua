-- How the old claim cleared its hold: it is gone without a trace, and the counter stays.
local token, shop = ARGV[5], ARGV[6]
local h = read_hold(token)
if h.state ~= 'held' or h.shop ~= shop then return { 'unknown' } end
check_indexes(token)
redis.call('ZREM', HOLDS, token)
redis.call('DEL', hold_key(token))
return { 'ok', 0, answer(token, h) }
