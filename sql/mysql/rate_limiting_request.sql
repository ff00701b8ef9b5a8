-- rate_limiting_request: takes one token from the bucket of a caller.
--
-- The zone follows from the two parameters and is made when there is none: a token bucket that is filled
-- with refill_per_sec tokens a second up to refill_per_sec * window_seconds. In a transaction of its own.
--
-- Arguments  rate_id         the bucket, 1 to 255 bytes of UTF-8 without control characters
--            refill_per_sec  tokens a second, from 1
--            window_seconds  seconds in which an empty bucket fills, from 1
-- Result     one row: rate_limiting_request, the tokens left, or -1 when there was none to take
-- Locks      the bucket's row, until it returns; on the first call with these parameters also the zone's name
-- Errors     those of zone_check; TG003 (31003) also when the bucket would hold more than 2147483647 tokens
drop procedure if exists rate_limiting_request;
create procedure rate_limiting_request(
    in rate_id        varbinary(4000),
    in refill_per_sec varbinary(100),
    in window_seconds varbinary(100)
)
sql security definer
begin
    call zone_decide('tokens', false, null, rate_id, null, 1, true, false, null, refill_per_sec, window_seconds);
end;
