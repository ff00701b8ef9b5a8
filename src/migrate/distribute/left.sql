-- The parts of the schema that are not spread over the nodes yet, in the order in which they must be: a step, and the
-- object that it is done to.
select s.step, s.object
from (
    select 1 as place, 'reference' as step, t.name as object, t.nth
    from unnest($1::text[]) with ordinality as t (name, nth)
    where not exists (
        select
        from pg_catalog.pg_dist_partition p
        where p.logicalrelid = to_regclass(t.name)
    )
    union all
    select 2, 'distribute', t.name, t.nth
    from unnest($2::text[]) with ordinality as t (name, nth)
    where not exists (
        select
        from pg_catalog.pg_dist_partition p
        where p.logicalrelid = to_regclass(t.name)
    )
    union all
    -- In the order in which they were made: a worker looks for what a routine calls.
    select 3, case when p.proname = any($3) and p.proargtypes[0] = 'int'::regtype then 'delegate' else 'routine' end,
        p.oid::regprocedure::text, p.oid::bigint
    from pg_catalog.pg_proc p
    left join pg_catalog.pg_dist_object o on o.classid = 'pg_proc'::regclass and o.objid = p.oid
    where p.pronamespace = current_schema()::regnamespace
        and (
            o.objid is null
            or (
                p.proname = any($3) and p.proargtypes[0] = 'int'::regtype and o.distribution_argument_index is null
            )
        )
) s
order by s.place, s.nth
