-- Citus takes a plan for every value of the simplest statements only: so routines plan for the values that they are called with.
do $$
declare
    v_routine regprocedure;
begin
    if to_regclass('pg_catalog.pg_dist_partition') is null then
        return;
    end if;
    -- Where there is no such table, a statement that names it has no plan.
    if not exists (select from pg_catalog.pg_dist_partition p where p.logicalrelid = to_regclass('zone_bucket_lock')) then
        return;
    end if;
    for v_routine in
        select p.oid
        from pg_catalog.pg_proc p
        where p.pronamespace = current_schema()::regnamespace and 'plan_cache_mode=force_generic_plan' = any(p.proconfig)
    loop
        execute format('alter function %s set plan_cache_mode = force_custom_plan', v_routine);
    end loop;
end
$$
