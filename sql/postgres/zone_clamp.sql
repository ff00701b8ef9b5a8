-- zone_clamp: a number that may have left 63 bits, brought back to their end. Not called from outside.
--
-- Arguments  p_number  any whole number
-- Result     the nearest that 63 bits hold
-- Locks      nothing
create function zone_clamp(p_number numeric)
returns bigint
language sql
immutable
as $$
    select least(greatest(p_number, -9223372036854775808), 9223372036854775807)::bigint
$$;
