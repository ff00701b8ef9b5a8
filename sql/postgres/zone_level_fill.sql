-- zone_level_fill: a level after some time, at most the capacity. Not called from outside.
--
-- Arguments  p_level     the level
--            p_capacity  the most that it can be
--            p_per_us    what flows in with each microsecond
--            p_us        the time
-- Result     the level
-- Locks      nothing
create function zone_level_fill(p_level bigint, p_capacity bigint, p_per_us bigint, p_us bigint)
returns bigint
language sql
immutable
as $$
    select case
        when p_level >= p_capacity or p_us >= (p_capacity - p_level + (p_per_us - 1)) / p_per_us then p_capacity
        else p_level + p_us * p_per_us
    end
$$;
