-- The size of each table that a decision writes, of its partitions together, and of each index.
select c.oid::regclass::text,
    coalesce(
        (select sum(pg_relation_size(t.relid))::bigint from pg_partition_tree(c.oid::regclass) t),
        pg_relation_size(c.oid)
    )
from pg_class c
where c.oid in ('zone_txn'::regclass, 'zone_bucket_lock'::regclass)
    or c.oid in (
        select i.indexrelid
        from pg_index i
        where i.indrelid in ('zone_txn'::regclass, 'zone_bucket_lock'::regclass)
    )
order by c.relname like 'zone_bucket%', c.relkind in ('i', 'I'), c.relname
