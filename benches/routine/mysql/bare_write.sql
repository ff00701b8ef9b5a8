-- The floor: update one row by its key and append one ledger row, in one round trip. Nothing is decided.
-- p_n makes the row differ from the others of its bucket.
create procedure bare_write(
    in p_zone_id    int,
    in p_bucket_key varbinary(255),
    in p_txn_id     binary(16),
    in p_n          bigint
)
begin
    start transaction;
    update zone_bucket_lock b
    set b.seq = p_n,
        b.last_at = utc_timestamp(6),
        b.spent_total = p_n,
        b.zone_version = 1
    where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key;
    insert into zone_txn (
        txn_id, zone_id, zone_version, bucket_key, seq, kind, blocked, reason, cost, spent, spent_total, remaining,
        zone_limit, created_at, row_hash
    )
    values (
        p_txn_id, p_zone_id, 1, p_bucket_key, p_n, 'check', 0, 'within_limit', 1, 1, p_n, 0, 100, utc_timestamp(6), repeat('-', 32)
    );
    commit;
end
