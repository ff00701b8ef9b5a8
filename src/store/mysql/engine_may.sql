-- May this user decide by itself?
select exists (
    select 1
    from information_schema.routines r
    where r.routine_schema = database() and r.routine_name = 'zone_engine_append'
)
