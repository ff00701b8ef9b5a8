-- Has upkeep to itself until the transaction ends; no row when somebody else has it.
select u.id
from zone_upkeep_lock u
where u.id = 1
for update skip locked
