-- zone_bring: brings a bucket to a time, through the changes of its policy, the end of its override and the ends of
-- what it holds. Not called from outside.
--
-- Arguments  p_zone  the version in force
--            p_head  the bucket
--            p_now   the time, not before the bucket's last one
-- Result     the bucket then, and the policy that is in force for it
-- Locks      nothing
-- Errors     TG005 the ledger lacks rows of the window
create function zone_bring(p_zone zone_version, p_head zone_bucket_lock, p_now timestamptz)
returns zone_brought
language plpgsql
as $$
declare
    c_now_us    constant bigint := zone_us(p_now);
    v_head      zone_bucket_lock := p_head;
    v_at_us     bigint := c_now_us;
    -- the version at v_at_us, and with the override
    v_zone      zone_version := p_zone;
    v_policy    zone_version;
    v_after     zone_version;
    v_override  zone_override;
    v_level     boolean;
    -- the versions from that of the last row on, and what ends
    v_versions  zone_version[];
    v_version   int := 1;
    v_ends      bigint[];
    v_amounts   numeric[];
    v_end       int := 1;
    -- what comes next
    v_change_us bigint;
    v_over_us   bigint;
    v_next_us   bigint;
begin
    if p_head.seq > 0 then
        v_at_us := zone_us(p_head.last_at);
        if p_head.zone_version < p_zone.version then
            select array_agg(v order by v.version)
            into v_versions
            from zone_version v
            where v.zone_id = p_zone.zone_id and v.version between p_head.zone_version and p_zone.version;
            v_zone := v_versions[1];
        end if;
    end if;
    if p_head.override_seq is not null then
        select o.zone_id, o.bucket_key, o.seq, o.rate, o.window_us, o.burst, o.rate_gcd, o.ban_exempt, o.ends_at
        into v_override
        from zone_override o
        where o.zone_id = p_head.zone_id and o.bucket_key = p_head.bucket_key and o.seq = p_head.override_seq;
    end if;
    v_policy := zone_policy(v_zone, v_override);
    if p_head.holding and (v_versions is not null or zone_family(v_zone.algorithm) = 'level') then
        select array_agg(zone_us(e.ends_at) order by e.ends_at), array_agg(e.amount order by e.ends_at)
        into v_ends, v_amounts
        from (
            select h.ends_at, sum(h.amount) as amount
            from zone_hold h
            where h.zone_id = p_head.zone_id and h.bucket_key = p_head.bucket_key
                and h.ends_at > p_head.last_at and h.ends_at <= p_now
                and h.seq > coalesce(p_head.carried_seq, 0)
            group by h.ends_at
        ) e;
    end if;
    loop
        v_level := v_head.level is not null and zone_family(v_policy.algorithm) = 'level';
        v_change_us := case
            when v_version < cardinality(v_versions)
                then greatest(least(zone_us((v_versions[v_version + 1]).changed_at), c_now_us), v_at_us)
        end;
        v_over_us := case when v_override.ends_at <= p_now then zone_us(v_override.ends_at) end;
        v_next_us := greatest(coalesce(least(v_ends[v_end], v_change_us, v_over_us), c_now_us), v_at_us);
        if v_level then
            v_head.level := zone_level_clamp(
                v_policy,
                v_head.level + (v_next_us - v_at_us)::numeric * (v_policy.rate / v_policy.rate_gcd)
            );
        end if;
        v_at_us := v_next_us;
        if v_ends[v_end] <= v_at_us then
            -- Nothing comes back of what a change of policy on the way put something else in place of.
            if v_level and coalesce(v_head.carried_seq < p_head.seq, true) then
                v_head.level := zone_level_clamp(
                    v_policy,
                    v_head.level + v_amounts[v_end] * (v_policy.window_us / v_policy.rate_gcd)
                );
            end if;
            v_end := v_end + 1;
        elsif v_change_us <= v_at_us then
            v_version := v_version + 1;
            v_zone := v_versions[v_version];
            v_after := zone_policy(v_zone, v_override);
            v_head := zone_convert(v_head, v_policy, v_after, v_zone.running_buckets, v_at_us);
            v_policy := v_after;
        elsif v_over_us <= v_at_us then
            v_head.override_seq := null;
            v_override := null;
            v_head := zone_convert(v_head, v_policy, v_zone, 'as-is', v_at_us);
            v_policy := v_zone;
        else
            return (v_head, v_policy, coalesce(v_override.ban_exempt, false))::zone_brought;
        end if;
    end loop;
end
$$;
