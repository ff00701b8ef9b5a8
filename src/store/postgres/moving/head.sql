-- The head of a bucket that arrives. $1 lists the columns in this order, behind zone_id and bucket_key.
update zone_bucket_lock b
set seq = (j.value ->> 2)::bigint,
    last_at = zone_time((j.value ->> 3)::bigint),
    spent_total = (j.value ->> 4)::bigint,
    level = (j.value ->> 5)::bigint,
    zone_version = (j.value ->> 6)::int,
    strikes = (j.value ->> 7)::bigint,
    banned_until = zone_time((j.value ->> 8)::bigint),
    bans = (j.value ->> 9)::int,
    ban_strikes = (j.value ->> 10)::bigint,
    carried = (j.value ->> 11)::bigint,
    carried_at = zone_time((j.value ->> 12)::bigint),
    carried_total = (j.value ->> 13)::bigint,
    carried_seq = (j.value ->> 14)::bigint,
    override_seq = (j.value ->> 15)::bigint,
    holding = j.value ->> 16 = '1',
    salt = decode(j.value ->> 17, 'hex'),
    row_hash = decode(j.value ->> 18, 'hex'),
    moved_to = j.value ->> 19
from jsonb_array_elements($1::jsonb) as j (value)
where b.zone_id = (j.value ->> 0)::int and b.bucket_key = j.value ->> 1
