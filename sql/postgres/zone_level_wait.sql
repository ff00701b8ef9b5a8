-- zone_level_wait: the least time until a level is there: by what flows in, and by what is reserved and comes back on the way. Not
-- called from outside.
--
-- Arguments  p_zone_id, p_bucket_key, p_carried_seq, p_holding  the bucket
--            p_level                             its level now
--            p_capacity, p_per_us, p_per_token   the policy
--            p_wanted                            the level that is waited for, at most the capacity
--            p_now_us                            the time
-- Result     microseconds from p_now_us
-- Locks      nothing
create function zone_level_wait(
    p_zone_id int, p_bucket_key text, p_carried_seq bigint, p_holding boolean, p_level bigint, p_capacity bigint, p_per_us bigint,
    p_per_token bigint, p_wanted bigint, p_now_us bigint
)
returns bigint
language plpgsql
as $$
declare
    v_level    bigint := p_level;
    v_at_us    bigint := p_now_us;
    v_there_us bigint;
    v_end      record;
begin
    loop
        v_there_us := least(
            v_at_us::numeric + (greatest(p_wanted - v_level, 0) + (p_per_us - 1)) / p_per_us, 9223372036854775807
        );
        exit when not p_holding;
        select zone_us(h.ends_at) as us, sum(h.amount) as amount
        into v_end
        from zone_hold h
        where h.zone_id = p_zone_id and h.bucket_key = p_bucket_key
            and h.ends_at > zone_time(v_at_us) and h.ends_at < zone_time(v_there_us)
            and h.seq > coalesce(p_carried_seq, 0)
        group by h.ends_at
        order by h.ends_at
        limit 1;
        exit when not found;
        v_level := zone_level_fill(v_level, p_capacity, p_per_us, v_end.us - v_at_us);
        v_level := zone_level_give(v_level, v_end.amount * p_per_token, p_capacity, p_per_us);
        v_at_us := v_end.us;
    end loop;
    return v_there_us - p_now_us;
end
$$;
