-- The leases of a bucket that have not been replaced.
select h.seq, t.target_at as since_us, h.member, t.cost as wants, t.checks as weight, t.band, h.amount as has,
    h.ends_at as ends_us
from zone_hold h
cross join zone_txn t on t.zone_id = h.zone_id and t.bucket_key = h.bucket_key and t.created_at = h.charged_at and t.seq = h.seq
where h.zone_id = ?1 and h.bucket_key = ?2 and t.kind = 'lease'
