-- Every write of the fence: with its line in the history and its message to the followers.
local HISTORY = PREFIX .. 'fence:history'

local function check_history() redis.call('LLEN', HISTORY) end

-- f: pod, epoch, stage, latched, by, reason, JSON for the history, how many lines to keep, channel
local function write_fence(f)
  redis.call('HSET', FENCE, 'pod', f[1], 'epoch', f[2], 'stage', f[3], 'latched', f[4], 'by', f[5], 'reason', f[6],
    'at_ms', text(now))
  redis.call('LPUSH', HISTORY, text(now) .. ' ' .. f[7])
  redis.call('LTRIM', HISTORY, 0, tonumber(f[8]) - 1)
  redis.call('PUBLISH', f[9], f[2])
end
