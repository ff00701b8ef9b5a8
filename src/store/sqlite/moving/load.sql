-- The load of a queue that arrives. ?1 lists the columns in this order.
insert into zone_queue (zone_id, bucket_key, waiting, away, settled_at)
select j.value ->> 0, j.value ->> 1, j.value ->> 2, j.value ->> 3, j.value ->> 4
from jsonb_each(?1) j
