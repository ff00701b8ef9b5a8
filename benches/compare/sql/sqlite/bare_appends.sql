insert into zone_txn (
    txn_id, zone_id, zone_version, bucket_key, seq, kind, blocked, reason, cost, spent, spent_total, remaining,
    zone_limit, created_at, row_hash
)
select unhex(value ->> 'txn'), ?1, 1, value ->> 'key', value ->> 'n', 'check', 0, 'within_limit', 1, 1,
    value ->> 'n', 0, 100, ?3, zeroblob(32)
from json_each(?2)
