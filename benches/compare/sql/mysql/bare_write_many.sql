-- The floor in batches: one update of the buckets' rows and one insert into the ledger with its real indexes,
-- in one transaction and one round trip. Nothing is decided.
create procedure bare_write_many(in p_zone_id int, in p_writes json)
begin
    start transaction;
    update json_table(p_writes, '$[*]' columns (
        bucket_key varchar(255) character set utf8mb4 path '$.key',
        n          bigint path '$.n'
    )) w
    straight_join zone_bucket_lock b on b.zone_id = p_zone_id and b.bucket_key = cast(w.bucket_key as binary)
    set b.seq = w.n,
        b.last_at = utc_timestamp(6),
        b.spent_total = w.n,
        b.zone_version = 1;
    insert into zone_txn (
        txn_id, zone_id, zone_version, bucket_key, seq, kind, blocked, reason, cost, spent, spent_total, remaining,
        zone_limit, created_at, row_hash
    )
    select unhex(w.txn), p_zone_id, 1, w.bucket_key, w.n, 'check', 0, 'within_limit', 1, 1, w.n, 0, 100,
        utc_timestamp(6), repeat('-', 32)
    from json_table(p_writes, '$[*]' columns (
        bucket_key varchar(255) character set utf8mb4 path '$.key',
        txn        varchar(32) character set ascii path '$.txn',
        n          bigint path '$.n'
    )) w;
    commit;
end
