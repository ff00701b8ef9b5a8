-- zone_level_clamp: a level, at most the capacity, and in no deeper debt than it can fill from without an overflow.
-- Not called from outside.
--
-- Arguments  p_zone   the policy
--            p_level  the level, of any size
-- Result     the level
-- Locks      nothing
create function zone_level_clamp(p_zone zone_version, p_level numeric)
returns bigint
language sql
immutable
as $$
    select least(
        greatest(
            p_level,
            zone_level_capacity(p_zone)::numeric + p_zone.rate / p_zone.rate_gcd - 9223372036854775807
        ),
        zone_level_capacity(p_zone)
    )::bigint
$$;
