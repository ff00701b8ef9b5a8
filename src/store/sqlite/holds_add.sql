-- The holds that end by themselves; in place of what was to end of the same charge. ?1 lists the rows, their columns in
-- this order.
insert into zone_hold (zone_id, bucket_key, seq, charged_at, amount, ends_at, member)
select j.value ->> 0, j.value ->> 1, j.value ->> 2, j.value ->> 3, j.value ->> 4, j.value ->> 5, j.value ->> 6
from jsonb_each(?1) j
where true
on conflict (zone_id, bucket_key, seq) do update
set amount = excluded.amount,
    ends_at = excluded.ends_at
