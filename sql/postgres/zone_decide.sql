-- zone_decide: decides one check. Reads, and writes nothing. Not called from outside.
--
-- Arguments  p_zone       the zone's version in force
--            p_head       the bucket; one without a row has seq 0
--            p_now        the time, by the clock that was read under the lock
--            p_cost       what to spend; 0 only looks
--            p_critical   it may take from the reserve
--            p_member     whom it is about, where members are counted
--            p_ttl_us     what it spends ends by itself after so long; null for never
--            p_held_back  another limit of the same request has blocked it: it must not pass
-- Result     one zone_verdict
-- Locks      nothing
-- Errors     TG003 the algorithm has no use for what is asked; TG004 the bucket's total is full;
--            TG005 the ledger lacks rows of the window
create function zone_decide(
    p_zone      zone_version,
    p_head      zone_bucket_lock,
    p_now       timestamptz,
    p_cost      bigint,
    p_critical  boolean default false,
    p_member    text    default null,
    p_ttl_us    bigint  default null,
    p_held_back boolean default false
)
returns zone_verdict
language plpgsql
as $$
declare
    -- Time never moves backwards within a bucket.
    c_now     constant timestamptz := greatest(p_now, p_head.last_at);
    c_now_us  constant bigint := zone_us(c_now);
    c_family  constant text := zone_family(p_zone.algorithm);
    v_brought zone_brought;
    v_zone    zone_version;
    v_head    zone_bucket_lock;
    v_level   bigint;
    v_banned  boolean;
    v_verdict zone_verdict;
    v_allows  boolean;
    v_until   timestamptz;
begin
    v_brought := zone_bring(p_zone, p_head, c_now);
    v_zone := v_brought.zone;
    v_head := v_brought.head;
    v_level := v_head.level;
    v_banned := coalesce(v_head.banned_until > c_now, false);
    if c_family = 'held' or v_zone.algorithm = 'queue' or p_member is not null then
        perform zone_ask_validate(p_zone.algorithm, p_cost, p_member, p_ttl_us);
    end if;

    v_verdict.decided_at := c_now;
    v_verdict.zone_limit := zone_limit(v_zone);
    if not p_critical then
        -- An override may leave nothing but the reserve.
        v_verdict.zone_limit := greatest(v_verdict.zone_limit - v_zone.reserve, 0);
    end if;
    if v_zone.mode = 'off' then
        v_verdict.reason := 'off';
        v_verdict.spent := 0;
        v_verdict.remaining := v_verdict.zone_limit;
        v_verdict.head := v_head;
    elsif c_family = 'window' then
        v_verdict := zone_decide_window(v_zone, v_head, v_verdict, p_cost, p_held_back or v_banned);
    elsif c_family = 'level' then
        v_verdict := zone_decide_level(v_zone, v_head, v_verdict, p_cost);
    else
        v_verdict := zone_decide_held(v_zone, v_head, v_verdict, p_cost, p_member);
    end if;
    v_head := v_verdict.head;
    v_allows := v_verdict.reason in ('within_limit', 'soft', 'off');

    if v_zone.mode <> 'off' and p_cost = 0 and v_banned then
        v_verdict.remaining := 0;
    elsif v_zone.mode <> 'off' and p_cost > 0 then
        if v_banned then
            if v_verdict.reason <> 'exceeds_limit' then
                v_verdict.reason := 'banned';
                v_verdict.retry_after_us :=
                    greatest(zone_us(v_head.banned_until) - c_now_us, v_verdict.retry_after_us);
                v_verdict.remaining := 0;
                v_verdict.spent := 0;
                v_head.level := v_level;
                v_allows := false;
            end if;
        elsif not v_allows and v_zone.ban_after is not null and not v_brought.ban_exempt then
            v_until := v_head.banned_until;
            v_head := zone_strike(v_zone, v_head, v_verdict.retry_after_us, c_now);
            if v_head.banned_until is distinct from v_until then
                v_verdict.banned_until := v_head.banned_until;
                if v_verdict.retry_after_us is not null then
                    v_verdict.retry_after_us :=
                        greatest(zone_us(v_head.banned_until) - c_now_us, v_verdict.retry_after_us);
                end if;
            end if;
        end if;
        if p_held_back and v_allows then
            v_verdict.reason := 'held_back';
            v_verdict.remaining := zone_clamp(v_verdict.remaining::numeric + v_verdict.spent);
            v_verdict.spent := 0;
            v_head.level := v_level;
            v_allows := false;
        end if;
    end if;

    if not v_allows then
        v_verdict.delay_us := null;
    end if;
    if v_verdict.spent = 0 or not v_allows then
        v_verdict.ends_at := null;
    elsif p_ttl_us is not null then
        v_verdict.ends_at := zone_time(c_now_us + p_ttl_us);
    end if;
    if v_head.spent_total > 9223372036854775807 - v_verdict.spent then
        perform zone_error('total', v_head.spent_total::text, v_verdict.spent::text);
    end if;
    v_verdict.blocked := not v_allows and v_zone.mode = 'enforce';
    v_head.seq := v_head.seq + case when v_verdict.banned_until is null then 1 else 2 end;
    v_head.last_at := c_now;
    v_head.spent_total := v_head.spent_total + v_verdict.spent;
    v_head.zone_version := p_zone.version;
    v_head.holding := v_head.holding or v_verdict.ends_at is not null;
    v_verdict.head := v_head;
    return v_verdict;
end
$$;
