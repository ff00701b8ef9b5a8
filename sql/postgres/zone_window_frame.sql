-- zone_window_frame: what counts at a time: all from a time on, and for a sliding counter a share of what came in the
-- slot before that. Not called from outside.
--
-- Arguments  p_window  the policy
--            p_at_us   the time
-- Result     from when on all counts; from when on a share does, and how many parts of how many: null without one
-- Locks      nothing
-- Errors     TG008 the algorithm is no window
create function zone_window_frame(
    p_window      zone_window,
    p_at_us       bigint,
    out o_from_us bigint,
    out o_fade_us bigint,
    out o_part    bigint,
    out o_of      bigint
)
language plpgsql
as $$
declare
    v_slot record;
begin
    if p_window.algorithm = 'fixed-window' then
        o_from_us := (zone_window_period(p_window, p_at_us)).o_start_us;
    elsif p_window.algorithm = 'sliding-counter' then
        v_slot := zone_window_slot(p_window, p_at_us);
        o_of := v_slot.o_slot_us;
        o_from_us := v_slot.o_start_us - (p_window.slots - 1) * o_of;
        o_fade_us := o_from_us - o_of;
        o_part := v_slot.o_start_us + o_of - p_at_us;
    elsif p_window.algorithm = 'sliding-log' then
        o_from_us := p_at_us - p_window.window_us + 1;
    else
        perform zone_error('algorithm', p_window.algorithm);
    end if;
end
$$;
