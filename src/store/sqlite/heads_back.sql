-- The heads of those buckets whose row was removed, as their ledgers left them: from the last row, or from the last of
-- those that are gone. As in heads.sql; the last number but one is always 0. ?1 lists [zone_id, bucket_key].
select group_concat(
        concat_ws(' ', b.n, b.seq, b.created_at, b.spent_total, b.zone_version, b.strikes, 0, b.level)
            || ';' || hex(b.row_hash) || hex(b.salt)
    ) as numbers
from (
    select j.key as n, t.seq, t.created_at, t.spent_total, t.zone_version, t.strikes, t.level, t.row_hash,
        coalesce(
            (
                select d.salt
                from zone_txn_dropped d
                where d.zone_id = j.value ->> 0 and d.bucket_key = j.value ->> 1
            ),
            (
                select f.salt
                from zone_txn f
                where f.zone_id = j.value ->> 0 and f.bucket_key = j.value ->> 1
                order by f.created_at, f.seq
                limit 1
            )
        ) as salt
    from jsonb_each(?1) j
    cross join zone_bucket_removed r
    cross join zone_txn t
    where r.zone_id = j.value ->> 0
        and t.id = (
            select l.id
            from zone_txn l
            where l.zone_id = j.value ->> 0 and l.bucket_key = j.value ->> 1
            order by l.created_at desc, l.seq desc
            limit 1
        )
    union all
    select j.key, d.seq, d.created_at, d.spent_total, d.zone_version, d.strikes, d.level, d.row_hash, d.salt
    from jsonb_each(?1) j
    cross join zone_bucket_removed r
    cross join zone_txn_dropped d
    where r.zone_id = j.value ->> 0
        and d.zone_id = j.value ->> 0
        and d.bucket_key = j.value ->> 1
        and not exists (
            select 1
            from zone_txn t
            where t.zone_id = d.zone_id and t.bucket_key = d.bucket_key
        )
) b
