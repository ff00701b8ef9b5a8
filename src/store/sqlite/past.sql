-- Decisions that transactions had before. ?1 lists [zone_id, bucket_key, txn_id in hex].
select j.key as n, t.txn_id, t.zone_version, t.seq, t.blocked, t.reason, t.cost, t.zone_limit, t.remaining,
    t.retry_after_us, t.delay_us, t.ends_at, t.created_at, 1 as replayed, t.kind, t.member
from jsonb_each(?1) j
cross join zone_txn t indexed by zone_txn_txn
where t.txn_id = unhex(j.value ->> 2) and t.zone_id = j.value ->> 0 and t.bucket_key = j.value ->> 1
    and t.kind in ('check', 'reserve', 'coalesced', 'unchecked')
