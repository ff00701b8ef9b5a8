-- zone_window_ended: what of the charges before one time has ended by another. Not called from outside.
--
-- A look at each piece that ends of a charge in the window.
--
-- Arguments  p_window     the bucket
--            p_before_us  charges before this time; null for all
--            p_at_us      ended by then
-- Result     units
-- Locks      nothing
create function zone_window_ended(p_window zone_window, p_before_us bigint, p_at_us bigint)
returns bigint
language plpgsql
as $$
declare
    v_ended numeric := 0;
begin
    if p_window.holding then
        select coalesce(sum(h.amount), 0)
        into v_ended
        from (
            select h.amount, h.ends_at, h.seq
            from zone_hold h
            where h.zone_id = p_window.zone_id and h.bucket_key = p_window.bucket_key
                and h.charged_at >= zone_time(p_window.floor_us)
                and h.charged_at < coalesce(zone_time(p_before_us), 'infinity')
            order by h.charged_at -- the subquery is kept whole and read by this index
            offset 0
        ) h
        where h.ends_at <= zone_time(p_at_us) and h.seq > coalesce(p_window.carried_seq, 0);
    end if;
    return zone_clamp(v_ended);
end
$$;
