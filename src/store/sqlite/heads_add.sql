-- Heads of buckets whose row was removed, before their next row. ?1 lists the columns in this order.
insert into zone_bucket_lock (
    zone_id, bucket_key, seq, last_at, spent_total, level, zone_version, strikes, salt, row_hash
)
select j.value ->> 0, j.value ->> 1, j.value ->> 2, j.value ->> 3, j.value ->> 4, j.value ->> 5, j.value ->> 6,
    j.value ->> 7, unhex(j.value ->> 8), unhex(j.value ->> 9)
from jsonb_each(?1) j
