-- Limits of a bucket that arrives. $1 lists the columns in this order.
insert into zone_override (
    zone_id, bucket_key, seq, rate, window_us, burst, rate_gcd, ban_exempt, ends_at
)
select
    (j.value ->> 0)::int, j.value ->> 1, (j.value ->> 2)::bigint, (j.value ->> 3)::bigint, (j.value ->> 4)::bigint,
    (j.value ->> 5)::bigint, (j.value ->> 6)::bigint, j.value ->> 7 = '1', zone_time((j.value ->> 8)::bigint)
from jsonb_array_elements($1::jsonb) as j (value)
