select z.name as zone, t.bucket_key, t.kind, t.spent, t.ends_at is not null and t.member is null as holds
from zone_txn t
join zone_master z on z.id = t.zone_id
where t.txn_id = ? and t.kind in ('check', 'reserve', 'unchecked', 'local')
order by t.created_at desc, t.id desc
