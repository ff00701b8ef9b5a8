-- zone_level_give: a level with so much more or less, at most the capacity, and in no deeper debt than it can fill from without an
-- overflow. Not called from outside.
--
-- Arguments  p_level     the level
--            p_more      what is given, of any size
--            p_capacity  the most that it can be
--            p_per_us    what flows in with each microsecond
-- Result     the level
-- Locks      nothing
create function zone_level_give(p_level numeric, p_more numeric, p_capacity bigint, p_per_us bigint)
returns bigint
language sql
immutable
as $$
    select least(greatest(p_level + p_more, p_capacity::numeric + p_per_us - 9223372036854775807), p_capacity)::bigint
$$;
