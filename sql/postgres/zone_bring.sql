-- zone_bring: brings a bucket of a plain zone to now, through the changes of its policy, the end of its override and the ends of
-- what it holds. Not called from outside.
--
-- Arguments  p_from, p_to  the versions that decided its last row, and that is in force
--            p_now         the time, not before p_last_at
--            the others    columns of the bucket
-- Result     its level and its override now, and the policy that is in force for it
-- Locks      nothing
-- Errors     TG012 a change on the way was more than SQL knows
create function zone_bring(
    p_zone_id      int,
    p_bucket_key   text,
    p_from         int,
    p_to           int,
    p_override_seq bigint,
    p_level        bigint,
    p_last_at      timestamptz,
    p_carried_seq  bigint,
    p_holding      boolean,
    p_now          timestamptz,
    out level        bigint,
    out override_seq bigint,
    out zone_limit   bigint,
    out window_us    bigint,
    out per_us       bigint,
    out per_token    bigint
)
language plpgsql
as $$
declare
    v_event     record;
    v_zone      record;            -- the version by then
    v_override  zone_override;
    v_at        timestamptz := p_last_at;
    v_per_token bigint;
    v_is_level  boolean;
    v_was_level boolean;
begin
    level := p_level;
    override_seq := p_override_seq;
    select o.rate, o.window_us, o.burst, o.rate_gcd, o.ends_at
    into v_override.rate, v_override.window_us, v_override.burst, v_override.rate_gcd, v_override.ends_at
    from zone_override o
    where o.zone_id = p_zone_id and o.bucket_key = p_bucket_key and o.seq = p_override_seq;
    for v_event in
        select e.at, e.place, e.version, e.amount
        from (
            select p_last_at as at, 0 as place, p_from as version, null::numeric as amount
            union all
            select h.ends_at, 1, null, sum(h.amount)
            from zone_hold h
            where p_holding and h.zone_id = p_zone_id and h.bucket_key = p_bucket_key
                and h.ends_at > p_last_at and h.ends_at <= p_now and h.seq > coalesce(p_carried_seq, 0)
            group by h.ends_at
            union all
            select least(greatest(max(v.changed_at) over (order by v.version), p_last_at), p_now), 2, v.version, null
            from zone_version v
            where v.zone_id = p_zone_id and v.version > p_from and v.version <= p_to
            union all
            select v_override.ends_at, 3, null, null
            where v_override.ends_at <= p_now
            union all
            select p_now, 4, null, null
        ) e
        order by greatest(e.at, p_last_at), e.place, e.version
    loop
        if level is not null and v_is_level then
            level := zone_level_fill(
                level, zone_limit * per_token, per_us, zone_us(greatest(v_event.at, v_at)) - zone_us(v_at)
            );
            if v_event.place = 1 then
                level := zone_level_give(level, v_event.amount * per_token, zone_limit * per_token, per_us);
            end if;
        end if;
        v_at := greatest(v_event.at, v_at);
        continue when v_event.place in (1, 4);
        if v_event.version is not null then
            select v.algorithm, v.rate, v.window_us, v.burst, v.rate_gcd, v.running_buckets, v.calendar, v.slots
            into v_zone
            from zone_version v
            where v.zone_id = p_zone_id and v.version = v_event.version;
            if v_event.place = 2 and v_zone.running_buckets <> 'as-is' then
                perform zone_error('beyond', p_zone_id::text, 'change');
            end if;
        else
            v_override := null;
            override_seq := null;
        end if;
        v_was_level := v_is_level;
        v_per_token := per_token;
        v_is_level := v_zone.algorithm in ('token-bucket', 'leaky-bucket', 'leaky-queue', 'uniform', 'queue');
        per_us := coalesce(v_override.rate, v_zone.rate) / coalesce(v_override.rate_gcd, v_zone.rate_gcd);
        -- A calendar's periods, and a window cut into slots, stay what they are.
        window_us := case
            when v_zone.calendar is null and v_zone.slots is null then coalesce(v_override.window_us, v_zone.window_us)
            else v_zone.window_us
        end;
        per_token := window_us / coalesce(v_override.rate_gcd, v_zone.rate_gcd);
        zone_limit := case
            when v_zone.algorithm = 'uniform' then 1
            when v_override.rate is null then coalesce(v_zone.burst, v_zone.rate)
            when v_is_level then coalesce(v_override.burst, v_override.rate)
            else v_override.rate
        end;
        if v_event.place = 0 or level is null then
            continue;
        elsif v_was_level and v_is_level then
            -- The same number of tokens; the one conversion that rounds, down.
            level := zone_level_give(
                floor(level::numeric * per_token / v_per_token), 0, zone_limit * per_token, per_us
            );
        else
            level := null;
        end if;
    end loop;
end
$$;
