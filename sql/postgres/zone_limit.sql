-- zone_limit: the most that can ever be spent at once. Not called from outside.
--
-- Arguments  p_zone  the policy
-- Result     the burst, or the rate; 1 for uniform
-- Locks      nothing
create function zone_limit(p_zone zone_version)
returns bigint
language sql
immutable
as $$
    select case when p_zone.algorithm = 'uniform' then 1 else coalesce(p_zone.burst, p_zone.rate) end
$$;
