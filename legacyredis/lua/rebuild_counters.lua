-- Sets counters, from triples of shop, item and units.
local answered = my_turn()
if answered then return answered end

for i = 8, #ARGV, 3 do redis.call('SET', counter_key(ARGV[i], ARGV[i + 1]), ARGV[i + 2]) end
return turn_done('0')
