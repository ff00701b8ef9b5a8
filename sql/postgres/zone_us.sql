-- zone_us: a time as microseconds since 1970, exactly. Not called from outside.
--
-- Arguments  p_at  the time
-- Result     the microseconds
-- Locks      nothing
create function zone_us(p_at timestamptz)
returns bigint
language sql
stable
as $$
    select (extract(epoch from p_at) * 1000000)::bigint
$$;
