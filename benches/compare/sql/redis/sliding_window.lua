-- A sliding window: a sorted set of the charges that count, by their time in microseconds.
-- KEYS[1] the bucket; ARGV: limit, window in microseconds, a name that no other charge has.
-- Returns 1 or 0, what remains, and the wait in microseconds.
local limit, window = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - window))
local spent = redis.call('ZCARD', KEYS[1])
if spent >= limit then
    local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
    return {0, 0, first[2] + window - now}
end
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[3])
redis.call('PEXPIRE', KEYS[1], math.ceil(window / 1000))
return {1, limit - spent - 1, 0}
