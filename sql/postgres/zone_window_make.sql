-- zone_window_make: makes ready to sum what a bucket has spent. Not called from outside.
--
-- Arguments  p_zone    the policy
--            p_head    the bucket
--            p_now_us  the time from which on the sums are asked for
-- Result     what the sums are made of
-- Locks      nothing
-- Errors     TG008 there is no such algorithm
create function zone_window_make(p_zone zone_version, p_head zone_bucket_lock, p_now_us bigint)
returns zone_window
language plpgsql
as $$
declare
    v_window zone_window;
    v_frame  record;
begin
    v_window.zone_id := p_head.zone_id;
    v_window.bucket_key := p_head.bucket_key;
    v_window.version := p_zone.version;
    v_window.algorithm := p_zone.algorithm;
    v_window.window_us := p_zone.window_us;
    v_window.slots := coalesce(p_zone.slots, 1);
    v_window.calendar := p_zone.calendar;
    v_window.seq := p_head.seq;
    v_window.last_us := zone_us(p_head.last_at);
    v_window.spent_total := p_head.spent_total;
    if p_head.carried is not null then
        v_window.carried := p_head.carried;
        v_window.carried_us := zone_us(p_head.carried_at);
        v_window.carried_total := p_head.carried_total;
        v_window.carried_seq := p_head.carried_seq;
    end if;
    v_window.holding := p_head.holding;
    v_window.now_us := p_now_us;
    v_window.own := 0;
    if v_window.holding then
        v_frame := zone_window_frame(v_window, p_now_us);
        v_window.floor_us := least(v_frame.o_from_us, v_frame.o_fade_us);
    end if;
    return v_window;
end
$$;
