-- zone_window_reached: when a bucket had spent so much that has not ended by a time. Not called from outside.
--
-- The totals are indexed: one probe, and another one as long as what has ended of the charges up to there moves the
-- answer on.
--
-- Arguments  p_window  the bucket
--            p_net     units
--            p_at_us   ended by then
-- Result     the time of the charge
-- Locks      nothing
create function zone_window_reached(p_window zone_window, p_net bigint, p_at_us bigint)
returns bigint
language plpgsql
as $$
declare
    v_ended      bigint := 0;
    v_by_then    bigint;
    v_total      bigint;
    v_reached_us bigint;
begin
    loop
        v_total := zone_clamp(p_net::numeric + v_ended);
        v_reached_us := null;
        if v_total <= p_window.carried_total then
            v_reached_us := p_window.carried_us;
        elsif v_total <= p_window.spent_total then
            select zone_us(t.created_at)
            into v_reached_us
            from zone_txn t
            where t.zone_id = p_window.zone_id and t.bucket_key = p_window.bucket_key
                and t.spent > 0 and t.spent_total >= v_total
            order by t.spent_total
            limit 1;
        end if;
        -- By the check in question itself. A ledger that cannot say has lost rows of the window; a whole window from
        -- now is certainly enough.
        v_reached_us := coalesce(v_reached_us, p_window.now_us);
        v_by_then := zone_window_ended(p_window, v_reached_us + 1, p_at_us);
        if v_by_then <= v_ended then
            return v_reached_us;
        end if;
        v_ended := v_by_then;
    end loop;
end
$$;
