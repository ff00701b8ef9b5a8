-- rate_limiting_request_in: takes one token from the bucket of a caller, inside that caller's transaction.
--
-- As rate_limiting_request. The token, and the zone if it was made, are committed or taken back with the caller's
-- transaction.
--
-- Arguments  rate_id         the bucket, 1 to 255 bytes of UTF-8 without control characters
--            refill_per_sec  tokens a second, from 1
--            window_seconds  seconds in which an empty bucket fills, from 1
-- Result     one row: rate_limiting_request, the tokens left, or -1 when there was none to take
-- Locks      the bucket's row, until the caller's transaction ends;
--            on the first call with these parameters also the zone's name
-- Errors     those of zone_check_in; TG003 (31003) also when the bucket would hold more than 2147483647 tokens
drop procedure if exists rate_limiting_request_in;
create procedure rate_limiting_request_in(
    in rate_id        varbinary(4000),
    in refill_per_sec varbinary(100),
    in window_seconds varbinary(100)
)
sql security definer
begin
    call zone_decide('tokens', true, null, rate_id, null, 1, true, false, null, refill_per_sec, window_seconds);
end;
