-- The last dropped row of a bucket that arrives without its oldest ones. ?1 lists the columns in this order.
insert into zone_txn_dropped (
    zone_id, bucket_key, seq, spent_total, level, strikes, created_at, zone_version, salt, row_hash
)
select
    j.value ->> 0, j.value ->> 1, j.value ->> 2, j.value ->> 3, j.value ->> 4, j.value ->> 5, j.value ->> 6,
    j.value ->> 7, unhex(j.value ->> 8), unhex(j.value ->> 9)
from jsonb_each(?1) j
