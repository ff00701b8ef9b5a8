-- The bans and overrides in force in a zone whose rows are older than a time, each with its row. ?1 the zone, ?2 the time,
-- ?3 now. One that has no row is not among them: it would get one.
select b.bucket_key, t.kind, t.created_at, t.note, t.actor, o.rate, o.window_us, o.burst, o.rate_gcd,
    o.ban_exempt, t.ends_at
from zone_bucket_lock b
cross join zone_txn t indexed by zone_txn_bucket
left join zone_override o on o.zone_id = t.zone_id and o.bucket_key = t.bucket_key and o.seq = t.seq
where b.zone_id = ?1
    and b.moved_to is null
    and (b.banned_until > ?3 or b.override_seq is not null)
    and t.zone_id = b.zone_id and t.bucket_key = b.bucket_key and t.created_at < ?2
    and t.kind in ('ban', 'override')
    and coalesce(t.ends_at > ?3, 1)
    and (t.ends_at = b.banned_until or o.seq = b.override_seq)
order by b.bucket_key
