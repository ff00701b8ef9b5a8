-- zone_engine_items_set: puts items of a queue where the rows lead to that a process has appended.
--
-- The items here are looked at by tallygate audit verify, which derives them from the rows.
--
-- Arguments  p_zone_id, p_bucket_key  the queue
--            p_waiting, p_away        how much is in it then: units that wait, and units that are away
--            p_settled_at             by when items have become something else without a row; null where a row comes with it
--            p_gone                   the rows of the offers of items that have gone
--            p_payload                what is given with the only new item; null for nothing
--            p_seqs and all others    of each item that is new or has changed what zone_engine_items tells of it
-- Result     how many items it has put or removed
-- Tells      on the channel tallygate_queue, with the commit, that something waits where nothing did: the zone's number, a colon
--            and the first eight bytes of the key's SHA-256 in hexadecimal digits, so that no key is told. Not each time that something
--            comes to wait: commits that tell anything stand in one line in the whole server.
-- Locks      the bucket's row, until the transaction ends
-- Errors     TG003 there is no such bucket, or a time that programs cannot read
create function zone_engine_items_set(
    p_zone_id int, p_bucket_key text, p_waiting bigint, p_away bigint, p_settled_at timestamptz, p_gone bigint[], p_payload text,
    p_seqs bigint[], p_txns uuid[], p_costs bigint[], p_bands smallint[], p_offered timestamptz[], p_deadlines timestamptz[], p_places text[],
    p_due timestamptz[], p_takes int[], p_last boolean[], p_receipts bigint[]
)
returns int
language plpgsql
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
declare
    v_rows int;
    v_done int := 0;
    v_waited bigint;
begin
    perform
    from zone_bucket_lock b
    where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key
    for update;
    if not found
        or '-infinity' >= any (p_offered || p_deadlines || p_due || p_settled_at)
        or '262143-01-01 00:00:00+00' <= any (p_offered || p_deadlines || p_due || p_settled_at)
    then
        perform zone_error('append', p_zone_id::text, 'null');
    end if;
    if cardinality(p_gone) > 0 then
        delete from zone_item i
        where i.zone_id = p_zone_id and i.bucket_key = p_bucket_key and i.seq = any (p_gone);
        get diagnostics v_done = row_count;
    end if;
    if cardinality(p_seqs) > 0 then
        insert into zone_item (
            seq, txn_id, cost, band, offered_at, deadline_at, place, due_at, takes, is_last, receipt, zone_id, bucket_key, payload
        )
        select n.seq, n.txn_id, n.cost, n.band, n.offered_at, n.deadline_at, n.place, n.due_at, n.takes, n.is_last, n.receipt,
            p_zone_id, p_bucket_key, p_payload
        from unnest(
            p_seqs, p_txns, p_costs, p_bands, p_offered, p_deadlines, p_places, p_due, p_takes, p_last, p_receipts
        ) as n (seq, txn_id, cost, band, offered_at, deadline_at, place, due_at, takes, is_last, receipt)
        on conflict (zone_id, bucket_key, seq) do update
        set place = excluded.place,
            due_at = excluded.due_at,
            takes = excluded.takes,
            is_last = excluded.is_last,
            receipt = excluded.receipt;
        get diagnostics v_rows = row_count;
        v_done := v_done + v_rows;
    end if;
    select q.waiting
    into v_waited
    from zone_queue q
    where q.zone_id = p_zone_id and q.bucket_key = p_bucket_key;
    insert into zone_queue as q (zone_id, bucket_key, waiting, away, settled_at)
    values (p_zone_id, p_bucket_key, p_waiting, p_away, p_settled_at)
    on conflict (zone_id, bucket_key) do update
    set waiting = excluded.waiting,
        away = excluded.away,
        settled_at = greatest(q.settled_at, excluded.settled_at);
    if p_waiting > 0 and coalesce(v_waited, 0) = 0 then
        perform pg_notify(
            'tallygate_queue',
            p_zone_id || ':' || encode(substr(sha256(convert_to(p_bucket_key, 'UTF8')), 1, 8), 'hex')
        );
    end if;
    return v_done;
end
$$;
