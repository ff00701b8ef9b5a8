-- The columns of heads that are not in the ledger's rows. ?1 lists [zone_id, bucket_key] and the columns in this order.
update zone_bucket_lock
set banned_until = j.value ->> 2,
    bans = j.value ->> 3,
    ban_strikes = j.value ->> 4,
    carried = j.value ->> 5,
    carried_at = j.value ->> 6,
    carried_total = j.value ->> 7,
    carried_seq = j.value ->> 8,
    override_seq = j.value ->> 9,
    holding = j.value ->> 10
from jsonb_each(?1) j
where zone_id = j.value ->> 0 and bucket_key = j.value ->> 1
