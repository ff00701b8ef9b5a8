-- Items of a queue that arrives. ?1 lists the columns in this order.
insert into zone_item (
    zone_id, bucket_key, seq, txn_id, cost, band, offered_at, deadline_at, place, due_at, takes, is_last, receipt, payload
)
select j.value ->> 0, j.value ->> 1, j.value ->> 2, unhex(j.value ->> 3), j.value ->> 4, j.value ->> 5, j.value ->> 6,
    j.value ->> 7, j.value ->> 8, j.value ->> 9, j.value ->> 10, j.value ->> 11, j.value ->> 12, j.value ->> 13
from jsonb_each(?1) j
