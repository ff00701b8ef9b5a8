-- The name of the session, where it is an operator's.
select user()
from information_schema.routines r
where r.routine_schema = database() and r.routine_name = 'zone_operator_append'
