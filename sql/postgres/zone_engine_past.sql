-- zone_engine_past: the rows that transactions have in buckets, for a process that decides by itself.
--
-- Arguments  p_zone_ids, p_bucket_keys, p_txn_ids  the transactions
-- Result     the rows, each with the place of its transaction, from 1; those of a transaction in their order
-- Locks      nothing
create function zone_engine_past(p_zone_ids int[], p_bucket_keys text[], p_txn_ids uuid[])
returns table (place int, ledger zone_txn)
language plpgsql
stable
security definer
set search_path from current
set enable_seqscan = off
set jit = off
as $$
declare
    v_asked record;
begin
    -- By a loop: of one bucket at a time Citus has a plan, too.
    for v_asked in
        select c.zone_id, c.bucket_key, c.txn_id, c.position::int
        from unnest(p_zone_ids, p_bucket_keys, p_txn_ids) with ordinality as c (zone_id, bucket_key, txn_id, position)
    loop
        return query
        select v_asked.position, t
        from zone_txn t
        where hashtextextended(t.bucket_key, uuid_hash_extended(t.txn_id, t.zone_id))
                = hashtextextended(v_asked.bucket_key, uuid_hash_extended(v_asked.txn_id, v_asked.zone_id))
            and t.bucket_key = v_asked.bucket_key and t.txn_id is not distinct from v_asked.txn_id and t.zone_id is not distinct from v_asked.zone_id
        order by t.seq;
    end loop;
end
$$;
