-- tallygate_schema_version: how far the schema is, for programs that may only execute routines.
--
-- Result     one row: version, the number of the last migration, and breaking, that of the last one which older programs
--            cannot work with, null when there is none; both null when nothing was applied; shard, the name of this
--            database among several, among, the names of those, with a space between them, and will, those once the list has
--            changed; null when it is alone; test_clock, whether it is one of tests, whose clock its owner sets
-- Locks      nothing
create function tallygate_schema_version()
returns table (version int, breaking int, shard text, among text, will text, test_clock boolean)
language sql
stable
security definer
set search_path from current
as $$
    select max(h.version), max(h.version) filter (where left(h.name, 9) = 'breaking_'),
        (select s.name from tallygate_shard s), (select s.among from tallygate_shard s),
        (select s.will from tallygate_shard s), false as test_clock
    from tallygate_schema_history h
$$;
