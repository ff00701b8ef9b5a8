-- The partitions from the oldest on: their names as SQL takes them, from when (null for the beginning) to when (null for
-- the end) their rows are, whether a removal of one was cut off, and whether the guard of its end was left behind.
select p.name, p.unfinished, p.guarded, substring(p.bound from $$FROM \('([^']*)'\)$$)::timestamptz as from_at,
    substring(p.bound from $$TO \('([^']*)'\)$$)::timestamptz as to_at
from (
    select quote_ident(c.relname) as name, i.inhdetachpending as unfinished, pg_get_expr(c.relpartbound, c.oid) as bound,
        exists (
            select
            from pg_constraint k
            where k.conrelid = c.oid and k.conname = 'zone_txn_bounds_ck'
        ) as guarded
    from pg_inherits i
    join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'zone_txn'::regclass
) p
order by to_at nulls last
