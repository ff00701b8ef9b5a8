-- May this user decide by itself?
select exists (
    select
    from pg_catalog.pg_proc p
    where p.proname = 'zone_engine_append'
        and pg_catalog.pg_function_is_visible(p.oid)
        and pg_catalog.has_function_privilege(p.oid, 'execute')
)
