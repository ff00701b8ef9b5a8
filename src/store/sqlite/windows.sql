-- The sum that each bucket had spent before a time, as one text; nothing but the place where no row is of that time or
-- later. ?1 lists [zone_id, bucket_key, time].
select group_concat(
        concat_ws(
            ' ',
            j.key,
            coalesce(
                (
                    select t.spent_total - t.spent
                    from zone_txn t
                    where t.zone_id = j.value ->> 0 and t.bucket_key = j.value ->> 1 and t.created_at >= j.value ->> 2
                    order by t.created_at, t.seq
                    limit 1
                ),
                (
                    select d.spent_total
                    from zone_txn_dropped d
                    where d.zone_id = j.value ->> 0 and d.bucket_key = j.value ->> 1
                )
            )
        )
    ) as numbers
from jsonb_each(?1) j
