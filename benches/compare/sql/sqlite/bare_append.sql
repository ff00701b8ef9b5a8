insert into zone_txn (
    txn_id, zone_id, zone_version, bucket_key, seq, kind, blocked, reason, cost, spent, spent_total, remaining,
    zone_limit, created_at, row_hash
)
values (?5, ?1, 1, ?2, ?3, 'check', 0, 'within_limit', 1, 1, ?3, 0, 100, ?4, zeroblob(32))
