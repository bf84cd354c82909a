-- Makes a held hold live for at least ttl from now, and at most life from its
-- grant; an expiry never moves back. Redis decides about ends, and so about this.
local epoch, token, shop, ttl, life = unpack(ARGV, 5, 9)

local refusal = check_fence(epoch)
if refusal then return refusal end
local h = read_hold(token)
if h.state == 'none' or is_reused(h, shop, '') then return { 'unknown' } end
if h.state == 'claiming' then return { 'claim-pending' } end
if is_ended(h) then return { 'ended', h.state } end
check_indexes(token)

local expires = math.min(now + tonumber(ttl), tonumber(h.granted) + tonumber(life))
local moved = extend_to(token, h, text(expires))
return { 'ok', moved and 0 or 1, answer(token, h) }
