do $do$
declare
    v_function text;
begin
    -- It may take a zone by its number or by its name.
    for v_function in
        select format('%I(%s)', p.proname, pg_get_function_identity_arguments(p.oid))
        from pg_catalog.pg_proc p
        where p.proname = '{name}' and p.pronamespace = current_schema()::regnamespace
    loop
        execute format('revoke all on function %s from public', v_function);
        execute format('comment on function %s is %L', v_function, '{says}');
    end loop;
end
$do$;
