-- zone_window_wait: the least time from now until at most so much counts. Not called from outside.
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
    v_at_us      bigint := p_window.now_us;
    v_must_leave bigint;
    v_there_us   bigint;
    v_end_us     bigint;
begin
    loop
        -- Seen from here, nothing ends by itself any more: when would so much have left the window?
        v_must_leave := zone_clamp(zone_window_total(p_window, v_at_us)::numeric - p_room);
        v_there_us := greatest(
            zone_window_left(
                p_window, zone_window_reached(p_window, v_must_leave, v_at_us), v_must_leave, v_at_us
            ),
            v_at_us
        );
        if not p_window.holding then
            return v_there_us - p_window.now_us;
        end if;
        -- Unless something ends before.
        select zone_us(h.ends_at)
        into v_end_us
        from zone_hold h
        where h.zone_id = p_window.zone_id and h.bucket_key = p_window.bucket_key
            and h.ends_at > zone_time(v_at_us) and h.ends_at <= zone_time(v_there_us)
        order by h.ends_at
        limit 1;
        if not found then
            return v_there_us - p_window.now_us;
        end if;
        v_at_us := v_end_us;
        if zone_window_used(p_window, v_at_us) <= p_room then
            return v_at_us - p_window.now_us;
        end if;
    end loop;
end
$$;
