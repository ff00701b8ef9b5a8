select z.heads_removed
from zone_master_view z
where z.id = $1
