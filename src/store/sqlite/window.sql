-- The two probes of the sliding log: the total before the window's first row, and when a total was reached.
select (
        select t.spent_total - t.spent
        from zone_txn t
        where t.zone_id = ?1 and t.bucket_key = ?2 and t.created_at > ?3
        order by t.created_at, t.seq
        limit 1
    ) as base,
    (
        select t.created_at
        from zone_txn t
        where t.zone_id = ?1 and t.bucket_key = ?2 and t.spent > 0 and t.spent_total >= ?4
        order by t.spent_total
        limit 1
    ) as reached_at
