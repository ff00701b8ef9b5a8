-- zone_window_wait: the least time until at most so much counts, if nothing else arrives. Now more does. Not called from outside.
--
-- Arguments  p_algorithm, p_window_us  the policy
--            p_now                     the time
--            p_room                    so much
--            the others                columns of the bucket
-- Result     microseconds from p_now
-- Locks      nothing
-- Errors     TG005 the ledger lacks rows of the window
create function zone_window_wait(
    p_zone_id int, p_bucket_key text, p_algorithm text, p_window_us bigint, p_now timestamptz, p_last_at timestamptz, p_total bigint,
    p_carried bigint, p_carried_at timestamptz, p_carried_total bigint, p_carried_seq bigint, p_holding boolean, p_room bigint
)
returns bigint
language plpgsql
as $$
declare
    c_now_us  constant bigint := zone_us(p_now);
    v_low_us  bigint := c_now_us;                -- more counts then
    v_high_us bigint := c_now_us + p_window_us;  -- and no more then
    v_at      timestamptz;
begin
    if p_algorithm = 'fixed-window' then
        v_high_us := zone_us(zone_window_from(p_algorithm, p_window_us, p_now)) + p_window_us;
    elsif not p_holding then
        -- Enough has left when the row has by which so much had been spent.
        if p_total - p_room <= p_carried_total then
            v_high_us := zone_us(p_carried_at) + p_window_us;
        else
            v_high_us := p_window_us + coalesce(
                zone_total_reached(p_zone_id, p_bucket_key, p_total - p_room, c_now_us - p_window_us, zone_us(p_last_at)), c_now_us
            );
        end if;
    end if;
    -- The sum never rises meanwhile, so with charges that end by themselves the time is found by halving.
    while p_holding and v_high_us - v_low_us > 1 loop
        v_at := zone_time(v_low_us + (v_high_us - v_low_us) / 2);
        if zone_window_used(
            p_zone_id, p_bucket_key, zone_window_from(p_algorithm, p_window_us, v_at), v_at, p_last_at, p_total, p_carried,
            p_carried_at, p_carried_total, p_carried_seq, true
        ) > p_room then
            v_low_us := zone_us(v_at);
        else
            v_high_us := zone_us(v_at);
        end if;
    end loop;
    return v_high_us - c_now_us;
end
$$;
