select t.id, t.created_at, z.name as zone, t.bucket_key, t.seq, t.txn_id, t.kind, t.checks, t.blocked, t.reason, t.cost,
    t.spent, t.spent_total, t.remaining, t.retry_after_us, t.delay_us, t.level, t.critical, t.band, t.member, t.target_at,
    t.ends_at, t.note, t.actor, t.login, t.zone_version
from zone_txn_view t
join zone_master_view z on z.id = t.zone_id
where t.zone_id = ? and t.bucket_key = cast(? as binary)
    and t.blocked = coalesce(?, t.blocked)
    and t.created_at >= ?
    and t.created_at < ?
    and t.created_at <= ?
    and (t.created_at < ? or t.id < ?)
order by t.created_at desc, t.seq desc
limit ?
