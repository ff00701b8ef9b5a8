-- zone_window_wait: the least time from now until at most so much counts. Not called from outside.
--
-- The count never rises while nothing arrives. So the answer lies behind the last end at which too much counts still,
-- and not after the next one: a look at what ends in the window for each halving of the ends.
--
-- Arguments  p_window  the bucket
--            p_room    how much may count, below what counts now
-- Result     microseconds
-- Locks      nothing
-- Errors     TG005 the ledger lacks rows of the window
create function zone_window_wait(p_window zone_window, p_room bigint)
returns bigint
language plpgsql
as $$
declare
    v_ends       bigint[];
    v_low        int := 0;  -- too much counts at this end, or now
    v_high       int := 1;  -- and not at this one, if there is one
    v_middle     int;
    v_at_us      bigint;
    v_must_leave bigint;
    v_left_us    bigint;
begin
    if p_window.holding then
        select array_agg(zone_us(e.ends_at) order by e.ends_at), count(*) + 1
        into v_ends, v_high
        from (
            select h.ends_at
            from zone_hold h
            where h.zone_id = p_window.zone_id and h.bucket_key = p_window.bucket_key
                and h.ends_at > zone_time(p_window.now_us)
            order by h.ends_at -- read by this index
        ) e;
    end if;
    while v_high - v_low > 1 loop
        v_middle := (v_low + v_high) / 2;
        if zone_window_used(p_window, v_ends[v_middle]) > p_room then
            v_low := v_middle;
        else
            v_high := v_middle;
        end if;
    end loop;
    -- Seen from there, nothing ends by itself any more: when would so much have left the window?
    v_at_us := coalesce(v_ends[v_low], p_window.now_us);
    v_must_leave := zone_clamp(zone_window_total(p_window, v_at_us)::numeric - p_room);
    v_left_us := zone_window_left(
        p_window, zone_window_reached(p_window, v_must_leave, v_at_us), v_must_leave, v_at_us
    );
    return least(greatest(v_left_us, v_at_us), v_ends[v_high]) - p_window.now_us;
end
$$;
