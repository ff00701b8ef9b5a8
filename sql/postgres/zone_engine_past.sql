-- zone_engine_past: the rows that transactions have in buckets, for a process that decides by itself.
--
-- Arguments  p_zone_ids, p_bucket_keys, p_txn_ids  the transactions
-- Result     the rows, each with the place of its transaction, from 1; those of a transaction in their order
-- Locks      nothing
create function zone_engine_past(p_zone_ids int[], p_bucket_keys text[], p_txn_ids uuid[])
returns table (place int, ledger zone_txn)
language sql
stable
security definer
set search_path from current
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set jit = off
as $$
    select c.place::int, t
    from unnest(p_zone_ids, p_bucket_keys, p_txn_ids) with ordinality as c (zone_id, bucket_key, txn_id, place)
    join zone_txn t on t.zone_id = c.zone_id and t.bucket_key = c.bucket_key and t.txn_id = c.txn_id
    order by c.place, t.seq
$$;
