-- Notes that MySQL has not followed with what became of a token here ('owed'), or
-- that it has ('followed'). Facts about facts: no epoch.
local what, token = ARGV[5], ARGV[6]

if what == 'followed' then
  redis.call('ZREM', PREFIX .. 'owed', token)
  return { 'ok' }
end
if being_rebuilt() then return { 'rebuilding' } end
redis.call('ZADD', PREFIX .. 'owed', 'NX', text(now), token)
return { 'ok' }
