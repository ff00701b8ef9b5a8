-- The last dropped row of a bucket that arrives without its oldest ones. $1 lists the columns in this order.
insert into zone_txn_dropped (
    zone_id, bucket_key, seq, spent_total, level, strikes, created_at, zone_version, salt, row_hash
)
select
    (j.value ->> 0)::int, j.value ->> 1, (j.value ->> 2)::bigint, (j.value ->> 3)::bigint, (j.value ->> 4)::bigint,
    (j.value ->> 5)::bigint, zone_time((j.value ->> 6)::bigint), (j.value ->> 7)::int, decode(j.value ->> 8, 'hex'),
    decode(j.value ->> 9, 'hex')
from jsonb_array_elements($1::jsonb) as j (value)
