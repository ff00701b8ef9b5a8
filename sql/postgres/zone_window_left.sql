-- zone_window_left: when what was spent up to and at a time has left the window so far that enough is gone. Not called
-- from outside.
--
-- Of what was spent in the slot that a sliding counter is leaving, floor(spent × rest / slot) counts when so much of
-- the slot is still in the window. The longest rest for which that is at most spent − must_leave is one below
-- ceil((spent − must_leave + 1) × slot / spent).
--
-- Arguments  p_window      the bucket
--            p_reached_us  the time up to which it was spent
--            p_must_leave  how much must be gone
--            p_at_us       what has ended by then does not count
-- Result     the time
-- Locks      nothing
-- Errors     TG005 the ledger lacks rows of the window; TG008 the algorithm is no window
create function zone_window_left(p_window zone_window, p_reached_us bigint, p_must_leave bigint, p_at_us bigint)
returns bigint
language plpgsql
as $$
declare
    v_slot    record;
    v_before  bigint;
    v_spent   bigint;
    v_keep    bigint;
    v_rest_us bigint;
begin
    if p_window.algorithm = 'sliding-log' then
        return p_reached_us + p_window.window_us;
    elsif p_window.algorithm = 'fixed-window' then
        return (zone_window_period(p_window, p_reached_us)).o_end_us;
    elsif p_window.algorithm <> 'sliding-counter' then
        perform zone_error('algorithm', p_window.algorithm);
    end if;
    v_slot := zone_window_slot(p_window, p_reached_us);
    v_before := zone_window_before(p_window, v_slot.o_start_us, p_at_us);
    v_spent := zone_clamp(
        zone_window_before(p_window, v_slot.o_start_us + v_slot.o_slot_us, p_at_us)::numeric - v_before
    );
    -- v_spent less what of it must be gone
    v_keep := zone_clamp(v_spent::numeric - zone_clamp(p_must_leave::numeric - v_before));
    v_rest_us := zone_share_up(zone_clamp(greatest(v_keep, 0) + 1::numeric), v_slot.o_slot_us, v_spent) - 1;
    return v_slot.o_start_us + p_window.window_us + v_slot.o_slot_us - least(greatest(v_rest_us, 0), v_slot.o_slot_us);
end
$$;
