-- zone_window_slot: the slot of a sliding counter that a time is in. Not called from outside.
--
-- Arguments  p_window  the policy
--            p_at_us   the time
-- Result     the first microsecond of the slot, and how long it is
-- Locks      nothing
create function zone_window_slot(p_window zone_window, p_at_us bigint, out o_start_us bigint, out o_slot_us bigint)
language plpgsql
as $$
begin
    o_slot_us := greatest(p_window.window_us / p_window.slots, 1);
    o_start_us := p_at_us - ((p_at_us % o_slot_us) + o_slot_us) % o_slot_us;
end
$$;
