-- When what each bucket had spent in all first reached a total. ?1 lists [zone_id, bucket_key, total].
select j.key as n,
    (
        select t.created_at
        from zone_txn t
        where t.zone_id = j.value ->> 0 and t.bucket_key = j.value ->> 1 and t.spent > 0
            and t.spent_total >= j.value ->> 2
        order by t.spent_total
        limit 1
    ) as reached_at
from json_each(?1) j
