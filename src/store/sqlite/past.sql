-- All rows that transactions have in a bucket, in any order. ?1 lists [zone_id, bucket_key, txn_id in hex].
select j.key as n, t.id, t.txn_id, t.zone_version, t.seq, t.kind, t.checks, t.blocked, t.reason, t.critical, t.band,
    t.cost, t.spent, t.spent_total, t.remaining, t.zone_limit, t.retry_after_us, t.delay_us, t.level, t.strikes,
    t.target_at, t.created_at, t.prev_at, t.ends_at, t.member, t.note, t.actor, t.login, t.salt, t.row_hash
from jsonb_each(?1) j
cross join zone_txn t indexed by zone_txn_txn
where t.txn_id = unhex(j.value ->> 2) and t.zone_id = j.value ->> 0 and t.bucket_key = j.value ->> 1
