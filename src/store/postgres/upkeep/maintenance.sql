-- When upkeep last came to its end, null for never, and up to when there are partitions, without the last one, which has no end.
select (select u.finished_at from zone_upkeep_lock_view u) as finished_at,
    (
        select max(substring(pg_get_expr(c.relpartbound, c.oid) from $$TO \('([^']*)'\)$$)::timestamptz)
        from pg_inherits i
        join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'zone_txn'::regclass
    ) as partitions_until
