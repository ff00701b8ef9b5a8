select v.version, v.row_hash
from zone_version v
where v.zone_id = $1
order by v.version desc
limit 1
