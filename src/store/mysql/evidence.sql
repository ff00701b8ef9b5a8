-- A page of a zone's rows, bucket by bucket, by the index zone_txn_bucket_uq: what remains of the bucket where the page
-- before ended, and what follows. Comparing all columns at once would not be read from the index.
(
    select t.id, t.bucket_key, t.txn_id, t.zone_version, t.seq, t.kind, t.checks, t.blocked, t.reason, t.critical, t.band, t.cost, t.spent,
    t.spent_total, t.remaining, t.zone_limit, t.retry_after_us, t.delay_us, t.level, t.strikes, t.target_at, t.created_at,
    t.prev_at, t.ends_at, t.member, t.note, t.actor, t.login, t.salt, t.row_hash, o.rate, o.window_us, o.burst, o.rate_gcd,
    o.ban_exempt, o.seq as exception_seq
    from zone_txn_by_bucket_view t
    left join zone_override_by_bucket_view o
        on o.zone_id = t.zone_id and o.bucket_key = t.bucket_key and o.seq = t.seq and t.kind = 'override'
    where t.zone_id = ?
        and t.bucket_key = cast(? as binary)
        and t.created_at >= ?
        and (t.created_at > ? or t.seq > ?)
        and t.created_at >= ?
        and t.created_at < ?
    order by t.created_at, t.seq
    limit 2000
)
union all
(
    select t.id, t.bucket_key, t.txn_id, t.zone_version, t.seq, t.kind, t.checks, t.blocked, t.reason, t.critical, t.band, t.cost, t.spent,
    t.spent_total, t.remaining, t.zone_limit, t.retry_after_us, t.delay_us, t.level, t.strikes, t.target_at, t.created_at,
    t.prev_at, t.ends_at, t.member, t.note, t.actor, t.login, t.salt, t.row_hash, o.rate, o.window_us, o.burst, o.rate_gcd,
    o.ban_exempt, o.seq as exception_seq
    from zone_txn_by_bucket_view t
    left join zone_override_by_bucket_view o
        on o.zone_id = t.zone_id and o.bucket_key = t.bucket_key and o.seq = t.seq and t.kind = 'override'
    where t.zone_id = ?
        and t.bucket_key > cast(? as binary)
        and t.created_at >= ?
        and t.created_at < ?
    order by t.bucket_key, t.created_at, t.seq
    limit 2000
)
order by bucket_key, created_at, seq
limit 2000
