-- tallygate_schema_version: the number of the last migration, for programs that may only execute routines.
--
-- Result     one row: version; null when none was applied
-- Locks      nothing
drop procedure if exists tallygate_schema_version;
create procedure tallygate_schema_version()
sql security definer
begin
    select max(h.version) as version
    from tallygate_schema_history h;
end;
