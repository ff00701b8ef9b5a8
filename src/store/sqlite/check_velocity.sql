select t.blocked, t.id, t.zone_id, t.bucket_key, v.rate, (v.window_us + 999999) / 1000000 as window_seconds
from zone_txn t
join zone_version v on v.zone_id = t.zone_id and v.version = t.zone_version
where t.zone_id = ? and t.bucket_key = ? and t.created_at = ? and t.seq = ?
