-- zone_strike: counts a blocked check for bans. Not called from outside.
--
-- Arguments  p_zone     the policy
--            p_head     the bucket
--            p_wait_us  after how long the check could have passed; null for never
--            p_now      the time
-- Result     the bucket; with a ban that begins now, banned_until and bans are new
-- Locks      nothing
-- Errors     TG003 the ban ends when no program can read it
create function zone_strike(p_zone zone_version, p_head zone_bucket_lock, p_wait_us bigint, p_now timestamptz)
returns zone_bucket_lock
language plpgsql
as $$
declare
    c_now_us    constant bigint := zone_us(p_now);
    v_head      zone_bucket_lock := p_head;
    v_before    bigint;
    v_from_us   bigint := c_now_us;
    v_length_us bigint := p_zone.ban_for_us;
begin
    v_head.strikes := v_head.strikes + 1;
    -- Those since the last ban are enough to know of, if they are too few.
    if v_head.strikes - v_head.ban_strikes < p_zone.ban_after then
        return v_head;
    end if;
    select t.strikes
    into v_before
    from zone_txn t
    where t.zone_id = p_head.zone_id and t.bucket_key = p_head.bucket_key
        and t.created_at < zone_time(c_now_us - p_zone.ban_within_us + 1)
    order by t.created_at desc, t.seq desc
    limit 1;
    if not found then
        select d.strikes
        into v_before
        from zone_txn_dropped d
        where d.zone_id = p_head.zone_id and d.bucket_key = p_head.bucket_key;
    end if;
    if v_head.strikes - greatest(v_before, v_head.ban_strikes) < p_zone.ban_after then
        return v_head;
    end if;
    v_head.bans := case
        when c_now_us <= zone_us(v_head.banned_until)::numeric + p_zone.ban_max_us
            then least(v_head.bans::bigint + 1, 2147483647)
        else 1
    end;
    v_head.ban_strikes := v_head.strikes;
    if p_zone.ban_from = 'window' then
        v_from_us := zone_clamp(c_now_us::numeric + coalesce(p_wait_us, 0));
    end if;
    for v_ban in 2 .. v_head.bans loop
        exit when v_length_us >= p_zone.ban_max_us or p_zone.ban_factor = 1;
        v_length_us := v_length_us * p_zone.ban_factor;
    end loop;
    v_head.banned_until := zone_time(zone_clamp(v_from_us::numeric + least(v_length_us, p_zone.ban_max_us)));
    if v_head.banned_until >= '262143-01-01 00:00:00+00' then
        -- No program could read it.
        perform zone_error('time', 'ban', (zone_us(v_head.banned_until) - c_now_us)::text);
    end if;
    return v_head;
end
$$;
