-- zone_window_before: what a bucket had spent before a time, less what of that has ended by another. Not called from
-- outside.
--
-- Each ledger row carries the running total, so it is that of the last row before: one index probe.
--
-- Arguments  p_window  the bucket
--            p_us      charges before this time
--            p_at_us   ended by then
-- Result     units
-- Locks      nothing
-- Errors     TG005 the ledger lacks rows of the window
create function zone_window_before(p_window zone_window, p_us bigint, p_at_us bigint)
returns bigint
language plpgsql
as $$
declare
    v_total bigint;
begin
    if p_us <= p_window.carried_us then
        v_total := p_window.carried_total - p_window.carried;
    elsif p_us > p_window.now_us then
        v_total := zone_clamp(p_window.spent_total::numeric + p_window.own);
    elsif p_window.seq = 0 or p_us > p_window.last_us then
        v_total := p_window.spent_total;
    else
        select t.spent_total
        into v_total
        from zone_txn t
        where t.zone_id = p_window.zone_id and t.bucket_key = p_window.bucket_key and t.created_at < zone_time(p_us)
        order by t.created_at desc, t.seq desc
        limit 1;
        if not found then
            select t.spent_total - t.spent
            into v_total
            from zone_txn t
            where t.zone_id = p_window.zone_id and t.bucket_key = p_window.bucket_key
            order by t.created_at, t.seq
            limit 1;
            if not found then
                select d.spent_total
                into v_total
                from zone_txn_dropped d
                where d.zone_id = p_window.zone_id and d.bucket_key = p_window.bucket_key;
                -- The row of an event that is the bucket's first comes after what it leaves is known.
                if not found and p_window.seq > 1 then
                    perform zone_error('ledger', p_window.zone_id::text);
                end if;
            end if;
        end if;
        v_total := greatest(coalesce(v_total, p_window.spent_total), p_window.carried_total);
    end if;
    return zone_clamp(v_total::numeric - zone_window_ended(p_window, p_us, p_at_us));
end
$$;
