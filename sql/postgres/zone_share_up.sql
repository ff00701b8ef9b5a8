-- zone_share_up: a × b / c, rounded up. Not called from outside.
--
-- Arguments  p_a, p_b  factors that are not negative
--            p_c       the divisor; what is less than 1 counts as 1
-- Result     the quotient, at most 2^63 - 1
-- Locks      nothing
create function zone_share_up(p_a bigint, p_b bigint, p_c bigint)
returns bigint
language sql
immutable
as $$
    select zone_clamp(div(p_a::numeric * p_b + greatest(p_c, 1) - 1, greatest(p_c, 1)))
$$;
