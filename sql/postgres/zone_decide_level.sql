-- zone_decide_level: what a token bucket, a leaky bucket, a leaky queue or uniform says of a check. Not called from
-- outside.
--
-- Arguments  p_zone     the policy
--            p_head     the bucket, its level brought to the time
--            p_verdict  the time and the limit
--            p_cost     what to spend
-- Result     p_verdict with the rest; its head has the level after the check
-- Locks      nothing
create function zone_decide_level(
    p_zone    zone_version,
    p_head    zone_bucket_lock,
    p_verdict zone_verdict,
    p_cost    bigint
)
returns zone_verdict
language plpgsql
as $$
declare
    c_per_us    constant bigint := p_zone.rate / p_zone.rate_gcd;
    c_per_token constant bigint := p_zone.window_us / p_zone.rate_gcd;
    c_capacity  constant bigint := zone_level_capacity(p_zone);
    -- The units that the reserve keeps back are not there for this check.
    c_kept      constant bigint := c_capacity - p_verdict.zone_limit * c_per_token;
    v_level     bigint := coalesce(p_head.level, c_capacity);
    v_head      zone_bucket_lock := p_head;
    v_verdict   zone_verdict := p_verdict;
begin
    v_verdict.spent := 0;
    if p_zone.algorithm = 'leaky-queue' then
        v_verdict.delay_us := (c_capacity - v_level + (c_per_us - 1)) / c_per_us;
    end if;
    if p_cost > p_verdict.zone_limit then
        v_verdict.reason := 'exceeds_limit';
    elsif p_cost > 0 and p_cost * c_per_token + c_kept > v_level then
        v_verdict.reason := 'over_limit';
        v_verdict.retry_after_us :=
            zone_level_wait(p_zone, p_head, p_cost * c_per_token + c_kept, zone_us(p_verdict.decided_at));
    else
        v_level := v_level - p_cost * c_per_token;
        v_verdict.reason := case
            when p_cost > 0 and c_capacity - v_level > p_zone.soft_rate::numeric * c_per_token then 'soft'
            else 'within_limit'
        end;
        v_verdict.spent := p_cost;
    end if;
    v_verdict.remaining := greatest((v_level - c_kept) / c_per_token, 0);
    v_head.level := v_level;
    v_verdict.head := v_head;
    return v_verdict;
end
$$;
