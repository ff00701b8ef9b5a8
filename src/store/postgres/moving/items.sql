-- Items of a queue that arrives. $1 lists the columns in this order.
insert into zone_item (
    zone_id, bucket_key, seq, txn_id, cost, band, offered_at, deadline_at, place, due_at, takes, is_last, receipt, payload
)
select (j.value ->> 0)::int, j.value ->> 1, (j.value ->> 2)::bigint, (j.value ->> 3)::uuid, (j.value ->> 4)::bigint,
    (j.value ->> 5)::smallint, zone_time((j.value ->> 6)::bigint), zone_time((j.value ->> 7)::bigint), j.value ->> 8,
    zone_time((j.value ->> 9)::bigint), (j.value ->> 10)::int, (j.value ->> 11)::int::boolean, (j.value ->> 12)::bigint,
    j.value ->> 13
from jsonb_array_elements($1::jsonb) as j (value)
