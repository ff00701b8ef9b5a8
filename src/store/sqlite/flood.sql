-- Is there a check of a bucket that was blocked for some time, from a time on, by a version whose blocked rows are
-- coalesced? ?1 the zone, ?2 the key, ?3 the time.
select exists (
    select 1
    from zone_txn t indexed by zone_txn_bucket
    cross join zone_version v
    where t.zone_id = ?1 and t.bucket_key = ?2 and t.created_at >= ?3
        and t.kind in ('check', 'reserve') and t.blocked and t.retry_after_us is not null
        and v.zone_id = t.zone_id and v.version = t.zone_version and v.blocked_rows = 'coalesced'
) as is_there
