-- listed returns holds of an index ("holds" by expiry, "claiming" by time of the
-- mark, "owed" by when MySQL failed to follow: all but what is held) that are at
-- least age past, oldest first, those with one of the items if any are given.
-- Reads at most bound entries; changes nothing. skip passes over that many matches,
-- so that one hold that can't be ended does not hide the rest.
local want_state = { holds = 'held', claiming = 'claiming' }

local function has_one_of(h, wanted)
  for item in string.gmatch(h.lines, '(%d+):%d+:%d+') do
    if wanted[item] then return true end
  end
  return false
end

local function listed(index, age, shop, skip, limit, bound, items)
  local wanted = {}
  for _, item in ipairs(items) do wanted[item] = true end
  local function matches(h)
    if index == 'owed' and h.state == 'held' or index ~= 'owed' and h.state ~= want_state[index] then return false end
    return #items == 0 or h.shop == shop and has_one_of(h, wanted)
  end

  local found, read, PAGE = {}, 0, 100
  while #found < limit and read < bound do
    local page = redis.call('ZRANGEBYSCORE', PREFIX .. index, '-inf', text(now - age), 'LIMIT', read, PAGE)
    for _, token in ipairs(page) do
      read = read + 1
      local f = redis.pcall('HMGET', hold_key(token), unpack(FIELDS))
      local h = as_hold(f.err and {} or f)
      if matches(h) then
        if skip > 0 then
          skip = skip - 1
        else
          found[#found + 1] = answer(token, h)
          if #found >= limit then break end
        end
      end
    end
    if #page < PAGE then break end
  end
  return found
end
