-- Begins a claim: held becomes claiming, which neither expires nor can be released. Rule 12.
local epoch, token, shop = unpack(ARGV, 5, 7)

local refusal = check_fence(epoch)
if refusal then return refusal end
local h = read_hold(token)
if h.state == 'none' or is_reused(h, shop, '') then return { 'unknown' } end
if h.state == 'released' or h.state == 'expired' then return { 'ended', h.state } end
check_indexes(token)

local again = 1
if h.state == 'held' then
  again = 0
  redis.call('HSET', hold_key(token), 'state', 'claiming', 'firm', '1')
  redis.call('ZADD', CLAIMING, text(now), token)
  redis.call('ZREM', HOLDS, token)
  h.state, h.firm = 'claiming', '1'
end
return { 'ok', again, answer(token, h) }
