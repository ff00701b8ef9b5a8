-- zone_level_wait: the least time until a level is there: by what flows in, and by what is held and given back on the
-- way. Not called from outside.
--
-- Arguments  p_zone    the policy
--            p_head    the bucket, its level brought to p_now_us
--            p_wanted  the level that is waited for, at most the capacity
--            p_now_us  the time
-- Result     microseconds from p_now_us
-- Locks      nothing
create function zone_level_wait(p_zone zone_version, p_head zone_bucket_lock, p_wanted bigint, p_now_us bigint)
returns bigint
language plpgsql
as $$
declare
    c_per_us    constant bigint := p_zone.rate / p_zone.rate_gcd;
    c_per_token constant bigint := p_zone.window_us / p_zone.rate_gcd;
    v_level     bigint := coalesce(p_head.level, zone_level_capacity(p_zone));
    v_at_us     bigint := p_now_us;
    v_there_us  bigint;
    v_end       record;
begin
    loop
        v_there_us := least(
            v_at_us::numeric + (greatest(p_wanted - v_level, 0) + (c_per_us - 1)) / c_per_us,
            9223372036854775807
        );
        if not p_head.holding then
            return v_there_us - p_now_us;
        end if;
        select zone_us(h.ends_at) as us, sum(h.amount) as amount
        into v_end
        from zone_hold h
        where h.zone_id = p_head.zone_id and h.bucket_key = p_head.bucket_key
            and h.ends_at > zone_time(v_at_us) and h.ends_at < zone_time(v_there_us)
            and h.seq > coalesce(p_head.carried_seq, 0)
        group by h.ends_at
        order by h.ends_at
        limit 1;
        if not found then
            return v_there_us - p_now_us;
        end if;
        v_level := zone_level_clamp(p_zone, v_level + (v_end.us - v_at_us)::numeric * c_per_us);
        v_level := zone_level_clamp(p_zone, v_level + v_end.amount * c_per_token);
        v_at_us := v_end.us;
    end loop;
end
$$;
