-- zone_time: microseconds since 1970 as a time, exactly. Not called from outside.
--
-- An interval is multiplied in floating point, so hours and what is left of them go apart: either is exact.
--
-- Arguments  p_us  the microseconds
-- Result     the time
-- Locks      nothing
create function zone_time(p_us bigint)
returns timestamptz
language sql
stable
as $$
    select timestamptz 'epoch' + p_us / 3600000000 * interval '1 hour' + p_us % 3600000000 * interval '1 microsecond'
$$;
