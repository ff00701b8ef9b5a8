-- Forgets who is no role of the database any more, and whose rights were taken away by hand.
delete from tallygate_grant g
where not exists (
    select
    from pg_catalog.pg_roles r
    where r.rolname = g.grantee and has_function_privilege(r.oid, 'tallygate_schema_version()', 'execute')
)
