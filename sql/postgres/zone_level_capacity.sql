-- zone_level_capacity: what a level is at most, in the units of the policy. Not called from outside.
--
-- A microsecond adds rate / rate_gcd units, a token is window_us / rate_gcd.
--
-- Arguments  p_zone  the policy
-- Result     the capacity
-- Locks      nothing
create function zone_level_capacity(p_zone zone_version)
returns bigint
language sql
immutable
as $$
    select zone_limit(p_zone) * (p_zone.window_us / p_zone.rate_gcd)
$$;
