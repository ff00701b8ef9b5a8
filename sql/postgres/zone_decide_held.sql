-- zone_decide_held: what a count of distinct members or of concurrent slots says of a check. Not called from outside.
--
-- Looks at each that is held, at most the limit.
--
-- Arguments  p_zone     the policy
--            p_head     the bucket
--            p_verdict  the time and the limit
--            p_cost     what to spend
--            p_member   whom it is about, where members are counted: one that is counted already wants nothing
-- Result     p_verdict with the rest; its head has the level after the check, none
-- Locks      nothing
create function zone_decide_held(
    p_zone    zone_version,
    p_head    zone_bucket_lock,
    p_verdict zone_verdict,
    p_cost    bigint,
    p_member  text
)
returns zone_verdict
language plpgsql
as $$
declare
    -- A charge from before a change of policy that forgot it is not asked for.
    c_after    constant bigint := coalesce(p_head.carried_seq, 0);
    c_limit    constant bigint := p_verdict.zone_limit;
    v_used     bigint := 0;
    v_known    boolean := false;
    v_wanted   bigint := p_cost;
    v_too_much bigint;
    v_hold     record;
    v_head     zone_bucket_lock := p_head;
    v_verdict  zone_verdict := p_verdict;
begin
    if p_head.holding then
        select coalesce(sum(h.amount), 0), coalesce(bool_or(h.member = p_member), false)
        into v_used, v_known
        from (
            select h.seq, h.amount, h.member
            from zone_hold h
            where h.zone_id = p_head.zone_id and h.bucket_key = p_head.bucket_key
                and h.ends_at > p_verdict.decided_at
            offset 0 -- keeps the subquery whole, so that it is read by the time of the end
        ) h
        where h.seq > c_after;
    end if;
    if p_zone.algorithm = 'distinct' and v_known then
        v_wanted := 0;
    end if;
    v_head.level := null;
    v_verdict.head := v_head;
    v_verdict.spent := 0;
    v_verdict.remaining := greatest(c_limit - v_used, 0);
    if v_wanted > c_limit then
        v_verdict.reason := 'exceeds_limit';
    elsif v_wanted > 0 and v_wanted > v_verdict.remaining then
        v_verdict.reason := 'over_limit';
        v_verdict.retry_after_us := 0;
        v_too_much := v_used - (c_limit - v_wanted);
        for v_hold in
            select h.seq, h.amount, h.ends_at
            from zone_hold h
            where h.zone_id = p_head.zone_id and h.bucket_key = p_head.bucket_key
                and h.ends_at > p_verdict.decided_at
            order by h.ends_at
        loop
            continue when v_hold.seq <= c_after;
            v_too_much := v_too_much - v_hold.amount;
            if v_too_much <= 0 then
                v_verdict.retry_after_us := zone_us(v_hold.ends_at) - zone_us(p_verdict.decided_at);
                exit;
            end if;
        end loop;
    else
        v_verdict.reason := case
            when p_cost > 0 and v_used + v_wanted > p_zone.soft_rate then 'soft'
            else 'within_limit'
        end;
        v_verdict.spent := v_wanted;
        v_verdict.remaining := v_verdict.remaining - v_wanted;
        v_verdict.ends_at := zone_time(zone_us(p_verdict.decided_at) + p_zone.window_us);
    end if;
    return v_verdict;
end
$$;
