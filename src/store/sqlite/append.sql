insert into zone_txn (
    txn_id, zone_id, zone_version, bucket_key, seq, kind, blocked, reason, cost, spent, spent_total, remaining,
    retry_after_us, level, created_at, prev_at
)
values (?1, ?2, ?3, ?4, ?5, 'check', ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
