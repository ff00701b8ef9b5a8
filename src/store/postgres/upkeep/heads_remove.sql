-- Removes those rows of idle buckets that say no more than the last row of their ledger. $1 the zone, $2 the buckets,
-- which are locked, $3 since when they were quiet. The shapes that settlements taught are of use for 15 minutes.
delete from zone_bucket_lock b
where b.zone_id = $1
    and b.bucket_key = any($2)
    and (b.last_at < $3 - interval '15 minutes' or b.shapes is null and b.last_at < $3)
    and b.banned_until is null
    and b.bans = 0
    and b.ban_strikes = 0
    and b.carried is null
    and b.override_seq is null
    and not b.holding
    and b.moved_to is null
    and not exists (
        select
        from zone_queue q
        where q.zone_id = b.zone_id and q.bucket_key = b.bucket_key and (q.waiting > 0 or q.away > 0)
    )
    and (
        exists (
            select
            from zone_txn t
            where t.zone_id = b.zone_id and t.bucket_key = b.bucket_key and t.created_at = b.last_at
                and t.seq = b.seq
        )
        or exists (
            select
            from zone_txn_dropped d
            where d.zone_id = b.zone_id and d.bucket_key = b.bucket_key and d.seq = b.seq
        )
    )
