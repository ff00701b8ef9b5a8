-- The head of a bucket that arrives. $1 lists the columns of this one in this order, behind zone_id and bucket_key.
update zone_bucket_lock b
set seq = ($1::jsonb -> 0 ->> 2)::bigint,
    last_at = zone_time(($1::jsonb -> 0 ->> 3)::bigint),
    spent_total = ($1::jsonb -> 0 ->> 4)::bigint,
    level = ($1::jsonb -> 0 ->> 5)::bigint,
    zone_version = ($1::jsonb -> 0 ->> 6)::int,
    strikes = ($1::jsonb -> 0 ->> 7)::bigint,
    banned_until = zone_time(($1::jsonb -> 0 ->> 8)::bigint),
    bans = ($1::jsonb -> 0 ->> 9)::int,
    ban_strikes = ($1::jsonb -> 0 ->> 10)::bigint,
    carried = ($1::jsonb -> 0 ->> 11)::bigint,
    carried_at = zone_time(($1::jsonb -> 0 ->> 12)::bigint),
    carried_total = ($1::jsonb -> 0 ->> 13)::bigint,
    carried_seq = ($1::jsonb -> 0 ->> 14)::bigint,
    override_seq = ($1::jsonb -> 0 ->> 15)::bigint,
    holding = $1::jsonb -> 0 ->> 16 = '1',
    salt = decode($1::jsonb -> 0 ->> 17, 'hex'),
    row_hash = decode($1::jsonb -> 0 ->> 18, 'hex'),
    moved_to = $1::jsonb -> 0 ->> 19,
    shapes = $1::jsonb -> 0 ->> 20
where b.zone_id = ($1::jsonb -> 0 ->> 0)::int and b.bucket_key = $1::jsonb -> 0 ->> 1
