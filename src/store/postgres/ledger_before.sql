-- The last row of a bucket before a time.
select t.zone_id, t.bucket_key, t.id, t.txn_id, t.zone_version, t.seq, t.kind, t.checks, t.blocked, t.reason, t.critical, t.band,
    t.cost, t.spent, t.spent_total, t.remaining, t.zone_limit, t.retry_after_us, t.delay_us, t.level, t.strikes,
    t.target_at, t.created_at, t.prev_at, t.ends_at, t.member, t.note, t.actor, t.login, t.salt, t.row_hash
from zone_txn_view t
where t.zone_id = $1 and t.bucket_key = $2 and t.created_at < $3
order by t.created_at desc, t.seq desc
limit 1
