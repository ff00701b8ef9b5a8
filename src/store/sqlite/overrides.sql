-- The overrides of a range of buckets that hold at a time, by bucket; note, author and time are in the ledger.
select o.bucket_key, o.rate, o.window_us, o.burst, o.rate_gcd, o.ban_exempt, o.ends_at, t.note, t.actor, t.login,
    t.created_at
from zone_override o
cross join zone_bucket_lock b
cross join zone_txn t indexed by zone_txn_bucket
where o.zone_id = ?1 and o.bucket_key >= ?2 and o.bucket_key <= ?3
    and (o.ends_at is null or o.ends_at > ?4)
    and b.zone_id = o.zone_id and b.bucket_key = o.bucket_key and b.override_seq = o.seq and b.moved_to is null
    and t.zone_id = o.zone_id and t.bucket_key = o.bucket_key and t.seq = o.seq
order by o.bucket_key
