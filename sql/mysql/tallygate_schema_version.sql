-- tallygate_schema_version: how far the schema is, for programs that may only execute routines.
--
-- Result     one row: version, the number of the last migration, and breaking, that of the last one which older programs
--            cannot work with, null when there is none; both null when nothing was applied; shard, the name of this
--            database among several, among, the names of those, with a space between them, and will, those once the list has
--            changed; null when it is alone; test_clock, whether it is one of tests, whose clock its owner sets
-- Locks      nothing
drop procedure if exists tallygate_schema_version;
create procedure tallygate_schema_version()
sql security definer
begin
    select max(h.version) as version, max(if(left(h.name, 9) = 'breaking_', h.version, null)) as breaking,
        (select s.name from tallygate_shard s) as shard, (select s.among from tallygate_shard s) as among,
        (select s.will from tallygate_shard s) as will, false as test_clock
    from tallygate_schema_history h;
end;
