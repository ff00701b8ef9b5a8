-- The name of the session, where it is an operator's.
select session_user::text
where exists (
    select
    from pg_catalog.pg_proc p
    where p.proname = 'zone_operator_append'
        and pg_catalog.pg_function_is_visible(p.oid)
        and pg_catalog.has_function_privilege(p.oid, 'execute')
)
