-- One row of the ledger; the second statement, which moves the head, is the trigger's.
insert into zone_txn (
    txn_id, zone_id, zone_version, bucket_key, seq, kind, blocked, reason, cost, spent, spent_total, remaining,
    zone_limit, created_at, row_hash
)
select ?4, b.zone_id, 1, b.bucket_key, b.seq + 1, 'check', 0, 'within_limit', 1, 1, b.seq + 1, 0, 100, ?3, b.row_hash
from zone_bucket_lock b
where b.zone_id = ?1 and b.bucket_key = ?2
