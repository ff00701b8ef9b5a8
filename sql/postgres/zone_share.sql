-- zone_share: a × b / c, rounded down. Not called from outside.
--
-- Arguments  p_a, p_b  factors of either sign; their product may have any length
--            p_c       the divisor, from 1
-- Result     the quotient
-- Locks      nothing
create function zone_share(p_a numeric, p_b numeric, p_c bigint)
returns numeric
language sql
immutable
as $$
    select div(p_a * p_b - mod(mod(p_a * p_b, p_c) + p_c, p_c), p_c)
$$;
