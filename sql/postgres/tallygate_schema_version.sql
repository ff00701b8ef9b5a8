-- tallygate_schema_version: the number of the last migration, for programs that may only execute routines.
--
-- Result     the number; null when none was applied
-- Locks      nothing
create function tallygate_schema_version()
returns int
language sql
stable
security definer
set search_path from current
as $$
    select max(h.version)
    from tallygate_schema_history h
$$;
