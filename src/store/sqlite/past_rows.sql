-- All rows that transactions have in a bucket, in order. ?1 lists [zone_id, bucket_key, txn_id in hex].
select j.key as n, t.kind, t.zone_version, t.seq, t.blocked, t.cost, t.spent, t.remaining, t.created_at, t.ends_at,
    t.member is not null as has_member, 1 as replayed
from jsonb_each(?1) j
cross join zone_txn t indexed by zone_txn_txn
where t.txn_id = unhex(j.value ->> 2) and t.zone_id = j.value ->> 0 and t.bucket_key = j.value ->> 1
order by t.seq
