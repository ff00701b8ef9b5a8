select t.id, t.created_at, z.name as zone, t.bucket_key, t.seq, t.txn_id, t.kind, t.checks, t.blocked, t.reason, t.cost,
    t.spent, t.spent_total, t.remaining, t.retry_after_us, t.delay_us, t.level, t.critical, t.band, t.member, t.target_at,
    t.ends_at, t.note, t.actor, t.login, t.zone_version
from zone_txn t
join zone_master z on z.id = t.zone_id
where t.zone_id = ?1 and ?2 is null
    and (?3 is null or t.blocked = ?3)
    and t.created_at >= max(?4, ?6) -- one bound: of two SQLite may search by the wider
    and t.created_at < ?5
    and (t.created_at > ?6 or t.id > ?7)
order by t.created_at, t.id
limit ?8
