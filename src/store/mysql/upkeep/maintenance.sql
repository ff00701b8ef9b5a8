-- When upkeep last came to its end, null for never, and up to when there are partitions, without the last one, which has no end.
-- They are not shown to who has no right to the table.
select (select u.finished_at from zone_upkeep_lock_view u where u.id = 1) as finished_at,
    (
        select max(cast(trim(both '''' from cast(p.partition_description as char)) as datetime(6)))
        from information_schema.partitions p
        where p.table_schema = database()
            and p.table_name = 'zone_txn'
            and lower(p.partition_description) <> 'maxvalue'
    ) as partitions_until
