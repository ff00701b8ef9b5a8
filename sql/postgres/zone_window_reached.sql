-- zone_window_reached: when a bucket had spent so much that has not ended by a time. Not called from outside.
--
-- The sum that had been spent by a time, less what of that has ended, never falls. So the answer lies behind the last
-- charge of which something has ended and by which that is too little, and not after the next one: one search in the
-- totals for each halving of these charges, and one more.
--
-- Arguments  p_window  the bucket
--            p_net     units
--            p_at_us   ended by then
-- Result     the time of the charge
-- Locks      nothing
-- Errors     TG008 the algorithm is no window
create function zone_window_reached(p_window zone_window, p_net bigint, p_at_us bigint)
returns bigint
language plpgsql
as $$
declare
    v_frame      record := zone_window_frame(p_window, p_window.now_us);
    v_charged    bigint[];   -- when charges were made of which something has ended
    v_ended      numeric[];  -- how much in all up to there
    v_low        int := 0;   -- too little had been spent by this one
    v_high       int := 1;   -- and enough by this one, if there is one
    v_middle     int;
    v_total      bigint;
    v_reached_us bigint;
begin
    if p_window.holding then
        select
            array_agg(zone_us(c.charged_at) order by c.charged_at),
            array_agg(c.ended order by c.charged_at),
            count(*) + 1
        into v_charged, v_ended, v_high
        from (
            select h.charged_at, sum(sum(h.amount)) over (order by h.charged_at) as ended
            from (
                select h.charged_at, h.amount, h.ends_at, h.seq
                from zone_hold h
                where h.zone_id = p_window.zone_id and h.bucket_key = p_window.bucket_key
                    and h.charged_at >= zone_time(p_window.floor_us)
                order by h.charged_at -- as in zone_window_ended
                offset 0
            ) h
            where h.ends_at <= zone_time(p_at_us) and h.seq > coalesce(p_window.carried_seq, 0)
            group by h.charged_at
        ) c;
    end if;
    loop
        v_middle := (v_low + v_high) / 2;
        v_total := zone_clamp(p_net + coalesce(v_ended[v_middle], 0));
        v_reached_us := null;
        if v_total <= p_window.carried_total then
            v_reached_us := p_window.carried_us;
        elsif v_total <= p_window.spent_total then
            v_reached_us := zone_total_reached(
                p_window.zone_id, p_window.bucket_key, v_total, least(v_frame.o_from_us, v_frame.o_fade_us) - 1,
                p_window.last_us
            );
        end if;
        -- By the check in question itself. A ledger that cannot say has lost rows of the window; a whole window from
        -- now is certainly enough.
        v_reached_us := coalesce(v_reached_us, p_window.now_us);
        if v_middle = v_low then
            return v_reached_us;
        elsif v_reached_us > v_charged[v_middle] then
            v_low := v_middle;
        else
            v_high := v_middle;
        end if;
    end loop;
end
$$;
