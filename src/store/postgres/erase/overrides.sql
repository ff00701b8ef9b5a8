-- Limits of the bucket's own, as in rows.sql. $1 the zone, $2 the key, $3 what stands in its place.
insert into zone_override (zone_id, bucket_key, seq, rate, window_us, burst, rate_gcd, ban_exempt, ends_at)
select o.zone_id, $3, o.seq, o.rate, o.window_us, o.burst, o.rate_gcd, o.ban_exempt, o.ends_at
from zone_override o
where o.zone_id = $1 and o.bucket_key = $2
