-- Put before every script of this folder. A script reads and checks everything
-- first and writes last: Redis does not undo what a failed script has written.
--
-- KEYS[1] is the fence. The other keys are made here from the prefix and the
-- counter template, because a token's items are known only once its hold has
-- been read; that is why all keys of a pod must live in one hash slot.
local PREFIX, TEMPLATE = ARGV[1], ARGV[2]
local WINDOW, RETENTION = tonumber(ARGV[3]), tonumber(ARGV[4]) -- milliseconds
local FENCE, HOLDS, CLAIMING = KEYS[1], PREFIX .. 'holds', PREFIX .. 'claiming'
local LIMIT = 9007199254740992 -- 2^53: beyond it Lua's numbers skip integers

-- While this key is there Redis is emptied and filled anew from MySQL: nobody
-- writes but the rebuild, not even facts, which their senders keep.
local REBUILD = PREFIX .. 'rebuild'
local function being_rebuilt() return redis.call('EXISTS', REBUILD) == 1 end

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function text(n) return string.format('%.0f', n) end

-- Ids stay text: an int64 does not fit into a Lua number.
local function counter_key(shop, item)
  return (string.gsub(TEMPLATE, '<(%a+)>', { shop = shop, item = item }))
end

local function hold_key(token) return PREFIX .. 'hold:' .. token end

local FIELDS = { 'state', 'shop', 'lines', 'expires_ms', 'granted_ms', 'attempt', 'firm', 'would', 'claimed' }

local function as_hold(f)
  return {
    state = f[1] or 'none', shop = f[2] or '0', lines = f[3] or '', expires = f[4] or '0',
    granted = f[5] or '0', attempt = f[6] or '0', firm = f[7] or '0', would = f[8] or '',
    part = f[9] or '', -- what a claim takes when it is not all of the lines
  }
end

local function read_hold(token) return as_hold(redis.call('HMGET', hold_key(token), unpack(FIELDS))) end

local function is_live(h) return h.state == 'held' or h.state == 'claiming' end
local function is_ended(h) return h.state == 'claimed' or h.state == 'released' or h.state == 'expired' end

-- A tentative hold becomes firm when its give-back window has passed.
local function is_firm(h) return h.firm == '1' or now - tonumber(h.granted) > WINDOW end

local function answer(token, h)
  return { token, h.state, h.shop, h.lines, h.expires, h.granted, h.attempt, is_firm(h) and '1' or '0', h.part }
end

-- An end record of a hold that was never known here has neither shop nor lines.
local function is_reused(h, shop, lines)
  if h.state == 'none' then return false end
  if h.shop ~= '0' and shop ~= '0' and h.shop ~= shop then return true end
  return h.lines ~= '' and lines ~= '' and h.lines ~= lines
end

-- units_of adds up the locations of each item: one counter knows no locations.
local function units_of(lines)
  local items, units = {}, {}
  for item, quantity in string.gmatch(lines, '(%d+):%d+:(%d+)') do
    if not units[item] then
      units[item] = 0
      items[#items + 1] = item
    end
    units[item] = units[item] + tonumber(quantity)
  end
  return items, units
end

-- lines_out is what a hold keeps out of the counters: its lines, or the part of
-- them that its claim takes.
local function lines_out(h)
  if h.state == 'held' then return h.lines end
  if h.state ~= 'claiming' and h.state ~= 'claimed' then return '' end
  return h.part ~= '' and h.part or h.lines
end

-- units_back is what the counters get when a hold keeps other lines out of them
-- from now on: items, and units by item, below zero for those that go out.
local function units_back(before, after)
  local _, units = units_of(before)
  local _, gone = units_of(after)
  local items = {}
  for item, quantity in pairs(gone) do units[item] = (units[item] or 0) - quantity end
  for item, quantity in pairs(units) do
    if quantity ~= 0 then items[#items + 1] = item end
  end
  return items, units
end

-- read_counters returns the counters by item, or nil and the refusal. What
-- INCRBY would not take (another type, " 5", "007") is refused here, before
-- anything is written.
local function read_counters(shop, items)
  local counters = {}
  for _, item in ipairs(items) do
    local key = counter_key(shop, item)
    local value = redis.pcall('GET', key)
    if type(value) == 'table' then return nil, { 'bad-counter', key, value.err } end
    if not value then return nil, { 'not-loaded', shop, item } end
    local n = tonumber(value)
    if not (value == '0' or string.find(value, '^%-?[1-9]%d*$')) or n > LIMIT or n < -LIMIT then
      return nil, { 'bad-counter', key, 'it holds "' .. string.sub(value, 1, 32) .. '", not a whole number within 2^53' }
    end
    counters[item] = n
  end
  return counters, nil
end

-- room_for says whether the counters still fit after units go out (-1) or come back (1).
local function room_for(shop, items, counters, units, sign)
  for _, item in ipairs(items) do
    local after = counters[item] + sign * units[item]
    if after > LIMIT or after < -LIMIT then
      return { 'bad-counter', counter_key(shop, item), 'the change would take it beyond 2^53' }
    end
  end
  return nil
end

-- check_indexes raises its error, if any, before the first write.
local function check_indexes(token)
  redis.call('ZSCORE', HOLDS, token)
  redis.call('ZSCORE', CLAIMING, token)
end

local function take_units(shop, items, units, counters)
  for _, item in ipairs(items) do
    counters[item] = redis.call('DECRBY', counter_key(shop, item), text(units[item]))
  end
end

local function return_units(shop, items, units)
  for _, item in ipairs(items) do
    redis.call('INCRBY', counter_key(shop, item), text(units[item]))
  end
end

-- extend_to moves the expiry of a held hold forward, never back, and says whether it did.
local function extend_to(token, h, expires)
  if h.state ~= 'held' or tonumber(expires) <= tonumber(h.expires) then return false end
  redis.call('HSET', hold_key(token), 'expires_ms', expires)
  redis.call('ZADD', HOLDS, expires, token)
  h.expires = expires
  return true
end

-- shortages names the lines that the counters don't suffice for.
local function shortages(lines, counters)
  local short, left = {}, {}
  for item in pairs(counters) do left[item] = math.max(counters[item], 0) end
  for item, group, quantity in string.gmatch(lines, '(%d+):(%d+):(%d+)') do
    local want = tonumber(quantity)
    if left[item] < want then
      short[#short + 1] = { item, group, want, left[item] }
    else
      left[item] = left[item] - want
    end
  end
  return short
end

local function per_line(lines, counters)
  local left = {}
  for item in string.gmatch(lines, '(%d+):%d+:%d+') do left[#left + 1] = counters[item] end
  return left
end

local function put_hold(token, h)
  redis.call('HSET', hold_key(token), 'state', h.state, 'shop', h.shop, 'lines', h.lines, 'expires_ms', h.expires,
    'granted_ms', h.granted, 'attempt', h.attempt, 'firm', h.firm, 'would', h.would)
  redis.call('ZADD', HOLDS, h.expires, token)
end

-- put_end writes the end record; it leaves by itself after the retention time.
local function put_end(token, h)
  redis.call('HSET', hold_key(token), 'state', h.state, 'shop', h.shop, 'lines', h.lines, 'expires_ms', h.expires,
    'granted_ms', h.granted, 'attempt', h.attempt, 'firm', '1', 'claimed', h.part, 'ended_ms', text(now))
  redis.call('PEXPIRE', hold_key(token), text(RETENTION))
  redis.call('ZREM', HOLDS, token)
  redis.call('ZREM', CLAIMING, token)
end

local function make_firm(token, h)
  if h.firm ~= '1' then
    redis.call('HSET', hold_key(token), 'firm', '1')
    h.firm = '1'
  end
end

local function read_fence()
  local f = redis.call('HMGET', FENCE, 'pod', 'epoch', 'stage', 'latched', 'by', 'reason', 'at_ms')
  if not f[2] then return nil end
  for i = 1, 7 do f[i] = f[i] or '' end
  return f
end

-- check_fence refuses a deciding step of another epoch. "0" stands alone, outside any migration.
local function check_fence(epoch)
  if epoch == '0' then return nil end
  local f = read_fence()
  if not f then return { 'no-fence' } end
  if f[2] ~= epoch then return { 'stale', f } end
  return nil
end
