-- Items where their rows lead to. ?3 lists them; ?4 is the payload of the new one.
insert into zone_item (
    zone_id, bucket_key, seq, txn_id, cost, band, offered_at, deadline_at, place, due_at, takes, is_last, receipt, payload
)
select ?1, ?2, j.value ->> 0, unhex(j.value ->> 1), j.value ->> 2, j.value ->> 3, j.value ->> 4, j.value ->> 5, j.value ->> 6,
    j.value ->> 7, j.value ->> 8, j.value ->> 9, j.value ->> 10, ?4
from jsonb_each(?3) j
where true
on conflict (zone_id, bucket_key, seq) do update
set place = excluded.place,
    due_at = excluded.due_at,
    takes = excluded.takes,
    is_last = excluded.is_last,
    receipt = excluded.receipt
