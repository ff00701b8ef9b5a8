-- When what each bucket had spent in all first reached a total: the time in microseconds, found bit by bit from the
-- highest; as one text. ?1 lists [zone_id, bucket_key, total, a time when it was not reached, the highest bit].
with recursive search (n, zone_id, bucket_key, total, before, bit) as (
    select j.key, j.value ->> 0, j.value ->> 1, j.value ->> 2, j.value ->> 3, j.value ->> 4
    from jsonb_each(?1) j
    union all
    select s.n, s.zone_id, s.bucket_key, s.total,
        s.before + s.bit * (
            s.total > coalesce(
                (
                    select t.spent_total
                    from zone_txn t
                    where t.zone_id = s.zone_id and t.bucket_key = s.bucket_key and t.created_at <= s.before + s.bit
                    order by t.created_at desc, t.seq desc
                    limit 1
                ),
                0
            )
        ),
        s.bit / 2
    from search s
    where s.bit > 0
)
select group_concat(concat_ws(' ', s.n, s.before + 1)) as numbers
from search s
where s.bit = 0
