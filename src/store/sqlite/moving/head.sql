-- The head of a bucket that arrives. ?1 lists the columns in this order, behind zone_id and bucket_key.
update zone_bucket_lock
set seq = j.value ->> 2,
    last_at = j.value ->> 3,
    spent_total = j.value ->> 4,
    level = j.value ->> 5,
    zone_version = j.value ->> 6,
    strikes = j.value ->> 7,
    banned_until = j.value ->> 8,
    bans = j.value ->> 9,
    ban_strikes = j.value ->> 10,
    carried = j.value ->> 11,
    carried_at = j.value ->> 12,
    carried_total = j.value ->> 13,
    carried_seq = j.value ->> 14,
    override_seq = j.value ->> 15,
    holding = j.value ->> 16,
    salt = unhex(j.value ->> 17),
    row_hash = unhex(j.value ->> 18),
    moved_to = j.value ->> 19,
    shapes = j.value ->> 20
from jsonb_each(?1) j
where zone_id = j.value ->> 0 and bucket_key = j.value ->> 1
