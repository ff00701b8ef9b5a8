select o.bucket_key, o.seq, o.rate, o.window_us, o.burst, o.rate_gcd, o.ban_exempt, o.ends_at
from zone_override_by_bucket_view o
where o.zone_id = ? and o.bucket_key >= cast(? as binary) and o.bucket_key <= cast(? as binary)
order by o.zone_id, o.bucket_key, o.seq
