select z.heads_removed
from zone_master z
where z.id = ?1
