-- The holds of a bucket that arrives. $1 lists the columns in this order.
insert into zone_hold (
    zone_id, bucket_key, seq, charged_at, amount, ends_at, member
)
select
    (j.value ->> 0)::int, j.value ->> 1, (j.value ->> 2)::bigint, zone_time((j.value ->> 3)::bigint),
    (j.value ->> 4)::bigint, zone_time((j.value ->> 5)::bigint), j.value ->> 6
from jsonb_array_elements($1::jsonb) as j (value)
