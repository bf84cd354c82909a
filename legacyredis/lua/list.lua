local index, age, shop, skip, limit, bound = unpack(ARGV, 5, 10)
return { 'ok', listed(index, tonumber(age), shop, tonumber(skip), tonumber(limit), tonumber(bound), { unpack(ARGV, 11) }) }
