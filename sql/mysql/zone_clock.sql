-- zone_clock: reads the clock; not called from outside. Called when the locks are held.
--
-- The session's own idea of the time is dropped first.
--
-- Arguments  o_now_us  the time, in microseconds since 1970
-- Locks      nothing
drop procedure if exists zone_clock;
create procedure zone_clock(out o_now_us bigint)
sql security definer
begin
    set timestamp = default;
    set o_now_us = timestampdiff(microsecond, timestamp'1970-01-01 00:00:00', utc_timestamp(6));
end;
