-- check_velocity: may one more transaction of this bucket pass?
--
-- A check of cost 1 in a plain zone, under a transaction id made for it, in a transaction of its own.
--
-- Arguments  p_zone        the zone: its name, or its number
--            p_bucket_key  the bucket, 1 to 255 bytes of UTF-8 without control characters
-- Result     one row: blocked (0 or 1), id of the ledger row, the zone, the bucket, the rate, and the window
--            in seconds, rounded up
-- Locks      the bucket's row, until it returns
-- Errors     those of zone_check
drop procedure if exists check_velocity;
create procedure check_velocity(
    in p_zone       varbinary(4000),
    in p_bucket_key varbinary(4000)
)
sql security definer
begin
    call zone_decide('velocity', false, p_zone, p_bucket_key, null, 1, true, false, null, null, null);
end;
