select min(t.zone_id) as zone_id
from zone_txn t
where t.zone_id > ?1
