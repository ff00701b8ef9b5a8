-- The holds that end after a time, and those that ended before of the charges that were made after another one. ?1
-- lists [zone_id, bucket_key, a time that it ends after, a time that it was charged after].
select j.key as n, h.seq, h.charged_at, h.amount, h.ends_at, h.member
from jsonb_each(?1) j
cross join zone_hold h indexed by zone_hold_ends
where h.zone_id = j.value ->> 0 and h.bucket_key = j.value ->> 1 and h.ends_at > j.value ->> 2
union all
select j.key, h.seq, h.charged_at, h.amount, h.ends_at, h.member
from jsonb_each(?1) j
cross join zone_hold h indexed by zone_hold_charged
where h.zone_id = j.value ->> 0 and h.bucket_key = j.value ->> 1 and h.charged_at > j.value ->> 3
    and h.ends_at <= j.value ->> 2
