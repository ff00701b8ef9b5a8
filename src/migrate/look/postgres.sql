-- The tables, views, types and routines of the schema, and the comment of each routine. A routine that has the search path of another
-- schema, which this one was once called, would find nothing.
select c.relname::text, null
from pg_catalog.pg_class c
where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p', 'v', 'c')
union all
select p.proname::text, coalesce(obj_description(p.oid, 'pg_proc'), '')
from pg_catalog.pg_proc p
where p.pronamespace = current_schema()::regnamespace
    and not exists (
        select
        from unnest(p.proconfig) s (setting)
        where s.setting like 'search_path=%' and s.setting <> 'search_path=' || quote_ident(current_schema()) || ', pg_temp'
    )
