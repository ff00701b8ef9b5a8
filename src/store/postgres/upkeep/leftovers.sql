-- Former partitions that an earlier run was about to remove.
select quote_ident(c.relname) as name
from pg_class c
join pg_description d on d.objoid = c.oid and d.classoid = 'pg_class'::regclass and d.objsubid = 0
where c.relnamespace = current_schema()::regnamespace
    and c.relkind = 'r'
    and not c.relispartition
    and d.description = 'Taken from zone_txn to be dropped.'
order by c.relname
