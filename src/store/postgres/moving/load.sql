-- The load of a queue that arrives. $1 lists the columns in this order.
insert into zone_queue (zone_id, bucket_key, waiting, away, settled_at)
select (j.value ->> 0)::int, j.value ->> 1, (j.value ->> 2)::bigint, (j.value ->> 3)::bigint, zone_time((j.value ->> 4)::bigint)
from jsonb_array_elements($1::jsonb) as j (value)
