-- A page of a zone's rows, bucket by bucket, by the primary key.
select t.id, t.bucket_key, t.txn_id, t.zone_version, t.seq, t.kind, t.checks, t.blocked, t.reason, t.critical, t.band, t.cost, t.spent,
    t.spent_total, t.remaining, t.zone_limit, t.retry_after_us, t.delay_us, t.level, t.strikes, t.target_at, t.created_at,
    t.prev_at, t.ends_at, t.member, t.note, t.actor, t.login, t.salt, t.row_hash, o.rate, o.window_us, o.burst, o.rate_gcd,
    o.ban_exempt, o.seq as exception_seq
from zone_txn_view t
left join zone_override_by_bucket_view o on o.zone_id = t.zone_id and o.bucket_key = t.bucket_key and o.seq = t.seq
where t.zone_id = $1
    and (t.bucket_key, t.created_at, t.seq) > ($2, $3, $4)
    and t.created_at >= $5
    and t.created_at < $6
order by t.bucket_key, t.created_at, t.seq
limit 2000
