-- Does anything that stays name the zone?
select exists (select 1 from zone_bucket_lock b where b.zone_id = $1)
    or exists (select 1 from zone_txn t where t.zone_id = $1)
    or exists (select 1 from zone_txn_dropped d where d.zone_id = $1)
    or exists (select 1 from zone_removal r where r.zone_id = $1)
