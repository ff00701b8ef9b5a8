-- zone_window_used: what counts of a bucket's charges at a time, if nothing else arrives. Not called from outside.
--
-- Arguments  p_from, p_at  the window, and the time: now or later
--            the others    columns of the bucket
-- Result     the units
-- Locks      nothing
-- Errors     TG005 the ledger lacks rows of the window
create function zone_window_used(
    p_zone_id int, p_bucket_key text, p_from timestamptz, p_at timestamptz, p_last_at timestamptz, p_total bigint, p_carried bigint,
    p_carried_at timestamptz, p_carried_total bigint, p_carried_seq bigint, p_holding boolean
)
returns bigint
language plpgsql
as $$
declare
    v_before bigint := p_total;
    v_ended  bigint := 0;
begin
    if p_carried_at >= p_from then
        v_before := p_carried_total - p_carried;
    elsif p_last_at >= p_from then
        select t.spent_total - t.spent
        into v_before
        from zone_txn t
        where t.zone_id = p_zone_id and t.bucket_key = p_bucket_key and t.created_at >= p_from
        order by t.created_at, t.seq
        limit 1;
        if not found then
            perform zone_error('ledger', p_zone_id::text);
        end if;
    end if;
    if p_holding then
        select coalesce(sum(h.amount), 0)
        into v_ended
        from (
            select h.amount, h.ends_at, h.seq
            from zone_hold h
            where h.zone_id = p_zone_id and h.bucket_key = p_bucket_key and h.charged_at >= p_from
            order by h.charged_at -- the subquery is kept whole and read by this index
            offset 0
        ) h
        where h.ends_at <= p_at and h.seq > coalesce(p_carried_seq, 0);
    end if;
    return p_total - v_before - v_ended;
end
$$;
