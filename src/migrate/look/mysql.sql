-- The tables, views and routines of the database, and the comment of each routine. One that was made in other modes of SQL
-- would not do what its text says.
select cast(t.table_name as char), null
from information_schema.tables t
where t.table_schema = database()
union all
select cast(r.routine_name as char), cast(r.routine_comment as char)
from information_schema.routines r
where r.routine_schema = database() and r.sql_mode = @@session.sql_mode
