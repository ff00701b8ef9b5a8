select o.bucket_key, o.rate, o.window_us, o.burst, o.rate_gcd, o.ban_exempt, o.ends_at, t.note, t.actor, t.created_at
from zone_override o
join zone_bucket_lock b on b.zone_id = o.zone_id and b.bucket_key = o.bucket_key and b.override_seq = o.seq
join zone_txn t force index (zone_txn_bucket_uq)
    on t.zone_id = o.zone_id and t.bucket_key = o.bucket_key and t.seq = o.seq
where o.zone_id = ? and (o.ends_at is null or o.ends_at > utc_timestamp(6))
order by o.bucket_key
