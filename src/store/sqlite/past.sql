select t.txn_id, t.zone_version, t.seq, t.blocked, t.reason, t.cost, coalesce(v.burst, v.rate) as zone_limit,
    t.remaining, t.retry_after_us, t.created_at, 1 as replayed
from zone_txn t
join zone_version v on v.zone_id = t.zone_id and v.version = t.zone_version
where t.zone_id = ?1 and t.bucket_key = ?2 and t.txn_id = ?3
