-- The floor: update one row by its key and append one ledger row, in one round trip. Nothing is decided.
-- p_n makes the row differ from the others of its bucket.
create function bare_write(p_zone_id int, p_bucket_key text, p_txn_id uuid, p_n bigint)
returns void
language plpgsql
as $$
begin
    update zone_bucket_lock b
    set seq = p_n,
        last_at = clock_timestamp(),
        spent_total = p_n,
        zone_version = 1
    where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key;
    insert into zone_txn (
        txn_id, zone_id, zone_version, bucket_key, seq, kind, blocked, reason, cost, spent, spent_total, remaining,
        zone_limit, created_at, row_hash
    )
    values (
        p_txn_id, p_zone_id, 1, p_bucket_key, p_n, 'check', false, 'within_limit', 1, 1, p_n, 0, 100, clock_timestamp(),
        sha256('')
    );
end
$$;
