-- zone_window_used: what counts at a time, if nothing else arrives. Not called from outside.
--
-- Arguments  p_window  the bucket
--            p_at_us   the time, not before the one of p_window
-- Result     units
-- Locks      nothing
-- Errors     TG005 the ledger lacks rows of the window
create function zone_window_used(p_window zone_window, p_at_us bigint)
returns bigint
language plpgsql
as $$
declare
    v_frame  record;
    v_before bigint;
    v_used   bigint;
    v_fading bigint;
begin
    v_frame := zone_window_frame(p_window, p_at_us);
    v_before := zone_window_before(p_window, v_frame.o_from_us, p_at_us);
    v_used := zone_clamp(zone_window_total(p_window, p_at_us)::numeric - v_before);
    if v_frame.o_fade_us is not null then
        v_fading := zone_clamp(v_before::numeric - zone_window_before(p_window, v_frame.o_fade_us, p_at_us));
        v_used := zone_clamp(v_used + zone_share(greatest(v_fading, 0), v_frame.o_part, v_frame.o_of));
    end if;
    return v_used;
end
$$;
