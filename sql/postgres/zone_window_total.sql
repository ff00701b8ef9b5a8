-- zone_window_total: all that a bucket has spent, less what has ended by a time. Not called from outside.
--
-- Arguments  p_window  the bucket
--            p_at_us   the time
-- Result     units
-- Locks      nothing
create function zone_window_total(p_window zone_window, p_at_us bigint)
returns bigint
language plpgsql
as $$
begin
    return zone_clamp(
        zone_clamp(p_window.spent_total::numeric + p_window.own)::numeric - zone_window_ended(p_window, null, p_at_us)
    );
end
$$;
