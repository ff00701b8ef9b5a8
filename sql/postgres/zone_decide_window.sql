-- zone_decide_window: what a sliding log, a fixed window or a sliding counter says of a check. Not called from outside.
--
-- Arguments  p_zone       the policy
--            p_head       the bucket, brought to the time
--            p_verdict    the time and the limit
--            p_cost       what to spend
--            p_held_back  it must not pass whatever is said here, and so does not spend if it is blocked
-- Result     p_verdict with the rest; its head has the level after the check, none
-- Locks      nothing
-- Errors     TG005 the ledger lacks rows of the window
create function zone_decide_window(
    p_zone      zone_version,
    p_head      zone_bucket_lock,
    p_verdict   zone_verdict,
    p_cost      bigint,
    p_held_back boolean
)
returns zone_verdict
language plpgsql
as $$
declare
    c_now_us  constant bigint := zone_us(p_verdict.decided_at);
    c_limit   constant bigint := p_verdict.zone_limit;
    v_window  zone_window := zone_window_make(p_zone, p_head, c_now_us);
    v_used    constant bigint := zone_window_used(v_window, c_now_us);
    v_head    zone_bucket_lock := p_head;
    v_verdict zone_verdict := p_verdict;
begin
    v_head.level := null;
    v_verdict.head := v_head;
    v_verdict.spent := 0;
    v_verdict.remaining := greatest(zone_clamp(c_limit::numeric - v_used), 0);
    if p_cost > c_limit then
        v_verdict.reason := 'exceeds_limit';
    elsif p_cost > 0 and v_used > c_limit - p_cost then
        v_verdict.reason := 'over_limit';
        if p_zone.count_blocked and not p_held_back then
            -- A blocked check that counts delays itself.
            v_verdict.spent := p_cost;
            v_verdict.remaining := greatest(v_verdict.remaining - p_cost, 0);
            v_window.own := p_cost;
        end if;
        v_verdict.retry_after_us := zone_window_wait(v_window, c_limit - p_cost);
    else
        v_verdict.reason := case
            when p_cost > 0 and p_cost::numeric + v_used > p_zone.soft_rate then 'soft'
            else 'within_limit'
        end;
        v_verdict.spent := p_cost;
        v_verdict.remaining := v_verdict.remaining - p_cost;
    end if;
    return v_verdict;
end
$$;
