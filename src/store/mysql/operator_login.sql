-- Who is logged in, where that is an operator.
select user()
from information_schema.routines r
where r.routine_schema = database() and r.routine_name = 'zone_operator_append'
