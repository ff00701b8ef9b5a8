-- The partitions from the oldest on: their names as SQL takes them, from when (null for the beginning) to when (null for
-- the end) their rows are, and whether a removal of one was cut off.
select p.name, p.unfinished, substring(p.bound from $$FROM \('([^']*)'\)$$)::timestamptz as from_at,
    substring(p.bound from $$TO \('([^']*)'\)$$)::timestamptz as to_at
from (
    select quote_ident(c.relname) as name, i.inhdetachpending as unfinished, pg_get_expr(c.relpartbound, c.oid) as bound
    from pg_inherits i
    join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'zone_txn'::regclass
) p
order by to_at nulls last
