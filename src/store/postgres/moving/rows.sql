-- Rows of a bucket that arrives. $1 lists the columns in this order.
insert into zone_txn (
    txn_id, zone_id, zone_version, bucket_key, seq, kind, checks, blocked, reason, critical, cost, spent,
    spent_total, remaining, zone_limit, retry_after_us, delay_us, level, strikes, target_at, created_at, prev_at,
    ends_at, member, note, actor, login, salt, row_hash, band
)
select
    (j.value ->> 0)::uuid, (j.value ->> 1)::int, (j.value ->> 2)::int, j.value ->> 3, (j.value ->> 4)::bigint,
    j.value ->> 5, (j.value ->> 6)::int, j.value ->> 7 = '1', j.value ->> 8, j.value ->> 9 = '1',
    (j.value ->> 10)::bigint, (j.value ->> 11)::bigint, (j.value ->> 12)::bigint, (j.value ->> 13)::bigint,
    (j.value ->> 14)::bigint, (j.value ->> 15)::bigint, (j.value ->> 16)::bigint, (j.value ->> 17)::bigint,
    (j.value ->> 18)::bigint, zone_time((j.value ->> 19)::bigint), zone_time((j.value ->> 20)::bigint),
    zone_time((j.value ->> 21)::bigint), zone_time((j.value ->> 22)::bigint), j.value ->> 23, j.value ->> 24,
    j.value ->> 25, j.value ->> 26, decode(j.value ->> 27, 'hex'), decode(j.value ->> 28, 'hex'),
    (j.value ->> 29)::smallint
from jsonb_array_elements($1::jsonb) as j (value)
