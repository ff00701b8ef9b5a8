-- The number of blocked checks of each bucket that had counted for bans before a time, as one text. ?1 lists [zone_id,
-- bucket_key, time].
select group_concat(
        concat_ws(
            ' ',
            j.key,
            coalesce(
                (
                    select t.strikes
                    from zone_txn t
                    where t.zone_id = j.value ->> 0 and t.bucket_key = j.value ->> 1 and t.created_at < j.value ->> 2
                    order by t.created_at desc, t.seq desc
                    limit 1
                ),
                (
                    select d.strikes
                    from zone_txn_dropped d
                    where d.zone_id = j.value ->> 0 and d.bucket_key = j.value ->> 1
                ),
                0
            )
        )
    ) as numbers
from jsonb_each(?1) j
