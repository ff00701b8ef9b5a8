-- zone_level_carry: takes a token bucket's level through the changes of its zone's policy.
--
-- The level is brought to each change's time under the version before it and then kept as the same number
-- of tokens, rounded down, capped by the new capacity. A version of another algorithm forgets it: null,
-- which means full to the next token bucket.
--
-- Arguments  p_zone_id  the zone
--            p_from     the version under which p_level was left
--            p_to       the version in force
--            p_level    the level at p_at, in window_us/rate_gcd units of version p_from to a token
--            p_at       when it was left
--            p_now      the time of the decision; a change after it counts as made at it
-- Result     the level in units of version p_to, and the time at which it holds
-- Locks      nothing
create function zone_level_carry(
    p_zone_id   int,
    p_from      int,
    p_to        int,
    p_level     bigint,
    p_at        timestamptz,
    p_now       timestamptz,
    out o_level bigint,
    out o_at    timestamptz
)
language plpgsql
stable
security definer
set search_path from current
as $$
declare
    v_old       record;
    v_new       record;
    v_change_at timestamptz;
    v_capacity  numeric;
    v_elapsed   numeric;
begin
    o_level := p_level;
    o_at := p_at;
    for v_new in
        select v.algorithm, v.window_us / v.rate_gcd as per_token, v.rate / v.rate_gcd as per_us,
            coalesce(v.burst, v.rate) as capacity, v.changed_at
        from zone_version v
        where v.zone_id = p_zone_id and v.version between p_from and p_to
        order by v.version
    loop
        if v_old is not null then
            v_change_at := greatest(least(v_new.changed_at, p_now), o_at);
            if o_level is not null and v_old.algorithm = 'token-bucket' and v_new.algorithm = 'token-bucket' then
                v_capacity := v_old.capacity::numeric * v_old.per_token;
                v_elapsed := extract(epoch from v_change_at - o_at) * 1000000;
                o_level := least(
                    div(
                        least(o_level + v_elapsed * v_old.per_us, v_capacity) * v_new.per_token,
                        v_old.per_token
                    ),
                    v_new.capacity::numeric * v_new.per_token
                );
            else
                o_level := null;
            end if;
            o_at := v_change_at;
        end if;
        v_old := v_new;
    end loop;
end
$$;
