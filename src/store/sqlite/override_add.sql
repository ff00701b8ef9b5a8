-- ?1 lists the rows, their columns in this order.
insert into zone_override (zone_id, bucket_key, seq, rate, window_us, burst, rate_gcd, ban_exempt, ends_at)
select j.value ->> 0, j.value ->> 1, j.value ->> 2, j.value ->> 3, j.value ->> 4, j.value ->> 5, j.value ->> 6,
    j.value ->> 7, j.value ->> 8
from jsonb_each(?1) j
