-- The floor in batches: one update of the buckets' rows and one insert into the ledger with its real indexes,
-- in one transaction and one round trip. Nothing is decided.
create function bare_write_many(p_zone_id int, p_bucket_keys text[], p_txn_ids uuid[], p_ns bigint[])
returns void
language plpgsql
as $$
begin
    update zone_bucket_lock b
    set seq = w.n,
        last_at = clock_timestamp(),
        spent_total = w.n,
        zone_version = 1
    from unnest(p_bucket_keys, p_ns) as w (bucket_key, n)
    where b.zone_id = p_zone_id and b.bucket_key = w.bucket_key collate "C";
    insert into zone_txn (
        txn_id, zone_id, zone_version, bucket_key, seq, kind, blocked, reason, cost, spent, spent_total, remaining,
        zone_limit, created_at, row_hash
    )
    select w.txn_id, p_zone_id, 1, w.bucket_key, w.n, 'check', false, 'within_limit', 1, 1, w.n, 0, 100,
        clock_timestamp(), sha256('')
    from unnest(p_bucket_keys, p_txn_ids, p_ns) as w (bucket_key, txn_id, n);
end
$$;
