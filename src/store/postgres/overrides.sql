-- The overrides of a range of buckets that hold at a time, which is $4, by bucket.
select o.bucket_key, o.rate, o.window_us, o.burst, o.rate_gcd, o.ban_exempt, o.ends_at, o.note, o.actor, o.login,
    o.created_at
from zone_override_view o
join zone_bucket_lock_view b on b.zone_id = o.zone_id and b.bucket_key = o.bucket_key and b.override_seq = o.seq and b.moved_to is null
where o.zone_id = $1 and o.bucket_key >= $2 and o.bucket_key <= $3
    and o.created_at is not null and (o.ends_at is null or o.ends_at > $4)
order by o.bucket_key
