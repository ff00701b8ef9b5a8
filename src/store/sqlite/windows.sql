-- What each bucket had spent in all before the first row past a time. ?1 lists [zone_id, bucket_key, time].
select j.key as n,
    (
        select t.spent_total - t.spent
        from zone_txn t
        where t.zone_id = j.value ->> 0 and t.bucket_key = j.value ->> 1 and t.created_at > j.value ->> 2
        order by t.created_at, t.seq
        limit 1
    ) as base
from jsonb_each(?1) j
