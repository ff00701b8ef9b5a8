-- The bans and overrides in force in a zone whose rows are older than a time, each with its row: the zone, now, the time,
-- and now. One that has no row is not among them: it would get one.
select b.bucket_key, t.kind, t.created_at, t.note, t.actor, o.rate, o.window_us, o.burst, o.rate_gcd,
    o.ban_exempt, t.ends_at
from zone_bucket_lock b
join zone_txn t force index (zone_txn_bucket_uq) on t.zone_id = b.zone_id and t.bucket_key = b.bucket_key
left join zone_override o on o.zone_id = t.zone_id and o.bucket_key = t.bucket_key and o.seq = t.seq
where b.zone_id = ?
    and b.moved_to is null
    and (b.banned_until > ? or b.override_seq is not null)
    and t.created_at < ?
    and t.sealed
    and t.kind in ('ban', 'override')
    and coalesce(t.ends_at > ?, true)
    and (t.ends_at = b.banned_until or o.seq = b.override_seq)
order by b.bucket_key
