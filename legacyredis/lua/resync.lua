-- The old system's rebuild of one counter: the ledger less what Redis holds.
-- It reads every live hold, so it is for repairs and tests.
local shop, item, available = ARGV[5], ARGV[6], tonumber(ARGV[7])
for _, index in ipairs({ HOLDS, CLAIMING }) do
  for _, token in ipairs(redis.call('ZRANGE', index, 0, -1)) do
    local h = read_hold(token)
    if is_live(h) and h.shop == shop then
      local _, units = units_of(lines_out(h))
      available = available - (units[item] or 0)
    end
  end
end
if available > LIMIT or available < -LIMIT then
  return { 'bad-counter', counter_key(shop, item), 'the change would take it beyond 2^53' }
end
redis.call('SET', counter_key(shop, item), text(available))
return { 'ok', available }
