-- A token bucket: a hash of its level and the time of that level.
-- KEYS[1] the bucket; ARGV: limit, window in microseconds.
-- Returns 1 or 0, the whole tokens that remain, and the wait in microseconds.
local limit, window = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local old = redis.call('HMGET', KEYS[1], 'level', 'at')
local level = limit
if old[1] then
    level = math.min(limit, old[1] + (now - old[2]) * limit / window)
end
local allowed, wait = 1, 0
if level >= 1 then
    level = level - 1
else
    allowed, wait = 0, math.ceil((1 - level) * window / limit)
end
redis.call('HSET', KEYS[1], 'level', string.format('%.17g', level), 'at', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil(window / 1000))
return {allowed, math.floor(level), wait}
