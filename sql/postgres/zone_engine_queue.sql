-- zone_engine_queue: how much was in a queue when it last changed, and the next items that are due.
--
-- Arguments  p_zone_id, p_bucket_key  the queue
--            p_due_at                 by when they are due
--            p_after_at, p_after_seq  only those behind the one that is due at this time, of the offer in this row
--            p_most                   at most so many
-- Result     units that wait and units that are away, and by when items were settled, with each item as zone_engine_items tells
--            it, in the order in which they are due; one row without an item where none is due; none where nothing was ever offered
-- Locks      nothing
create function zone_engine_queue(
    p_zone_id int, p_bucket_key text, p_due_at timestamptz, p_after_at timestamptz, p_after_seq bigint, p_most int
)
returns table (
    waiting bigint, away bigint, settled_us bigint,
    seq bigint, txn_id uuid, cost bigint, band smallint, offered_us bigint, deadline_us bigint, place text, due_us bigint,
    takes int, is_last boolean, receipt bigint, payload boolean
)
language plpgsql
stable
security definer
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_sort = off
set enable_incremental_sort = off
set jit = off
as $$
#variable_conflict use_column
begin
    return query
    select q.waiting, q.away, zone_us(q.settled_at),
        i.seq, i.txn_id, i.cost, i.band, zone_us(i.offered_at), zone_us(i.deadline_at), i.place, zone_us(i.due_at), i.takes,
        i.is_last, i.receipt, i.payload is not null
    from zone_queue q
    left join lateral (
        select i.seq, i.txn_id, i.cost, i.band, i.offered_at, i.deadline_at, i.place, i.due_at, i.takes, i.is_last, i.receipt,
            i.payload
        from zone_item i
        where i.zone_id = q.zone_id and i.bucket_key = q.bucket_key and i.due_at <= p_due_at
            and (i.due_at, i.seq) > (p_after_at, p_after_seq)
        order by i.zone_id, i.bucket_key, i.due_at, i.seq
        limit p_most
    ) i on true
    where q.zone_id = p_zone_id and q.bucket_key = p_bucket_key;
end
$$;
