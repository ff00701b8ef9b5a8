-- check_velocity_in: may one more transaction of this bucket pass, inside the caller's transaction?
--
-- As check_velocity, but the decision is committed, or taken back, with that transaction.
--
-- Arguments  p_zone        the zone: its name, or its number
--            p_bucket_key  the bucket, 1 to 255 bytes of UTF-8 without control characters
-- Result     one row: blocked (0 or 1), id of the ledger row, the zone, the bucket, the rate, and the window
--            in seconds, rounded up
-- Locks      the bucket's row, until the caller's transaction ends
-- Errors     those of zone_check_in
drop procedure if exists check_velocity_in;
create procedure check_velocity_in(
    in p_zone       varbinary(4000),
    in p_bucket_key varbinary(4000)
)
sql security definer
begin
    call zone_decide('velocity', true, p_zone, p_bucket_key, null, 1, true, false, null, null, null);
end;
