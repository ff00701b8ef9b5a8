select b.bucket_key, b.seq, b.last_at, b.spent_total, b.level, b.zone_version, b.strikes, b.banned_until, b.bans, b.ban_strikes,
    b.carried, b.carried_at, b.carried_total, b.carried_seq, b.override_seq, b.holding, b.salt, b.row_hash, b.moved_to, b.moved_by,
    b.shapes
from zone_bucket_lock b
where b.zone_id = ?1 and b.bucket_key >= ?2 and b.bucket_key <= ?3
order by b.zone_id, b.bucket_key
limit ?4
