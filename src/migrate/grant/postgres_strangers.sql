-- The first of those besides the owner of the tables, the schema's owner and superusers who may create in the schema, or whose
-- functions or operators are in it, as an end of a sentence, with the statement that mends it. $1 who is to own the tables where
-- there are none yet; null for who asks.
with schema as (
    select n.oid, n.nspowner, quote_ident(n.nspname) as name,
        coalesce(n.nspacl, acldefault('n', n.nspowner)) as rights,
        coalesce(
            (
                select c.relowner
                from pg_catalog.pg_class c
                where c.relnamespace = n.oid and c.relname = 'zone_master'
            ),
            to_regrole(quote_ident($1))::oid,
            current_user::regrole::oid
        ) as owner
    from pg_catalog.pg_namespace n
    where n.oid = current_schema()::regnamespace
),
others as (
    select r.oid, quote_ident(r.rolname) as name
    from schema s
    cross join pg_catalog.pg_roles r
    where not pg_has_role(r.oid, s.owner, 'member') and not pg_has_role(r.oid, s.nspowner, 'member')
    union all
    select 0, 'public'
)
select format('%s may create in the schema; run: revoke create on schema %s from %1$s', o.name, s.name)
from schema s
cross join aclexplode(s.rights) a
join others o on o.oid = a.grantee
where a.privilege_type = 'CREATE'
union all
select format('the operator %s in the schema is of %s; run: drop operator %1$s', p.oid::regoperator, o.name)
from schema s
join pg_catalog.pg_operator p on p.oprnamespace = s.oid
join others o on o.oid = p.oprowner
union all
select format('the function %s in the schema is of %s; run: drop routine %1$s', p.oid::regprocedure, o.name)
from schema s
join pg_catalog.pg_proc p on p.pronamespace = s.oid
join others o on o.oid = p.proowner
union all
select format('the table %s in the schema is of %s; run: drop table %1$s', c.oid::regclass, o.name)
from schema s
join pg_catalog.pg_class c on c.relnamespace = s.oid and c.relname = 'tallygate_schema_history'
join others o on o.oid = c.relowner
limit 1
