-- Rows of a bucket that arrives. ?1 lists the columns in this order.
insert into zone_txn (
    txn_id, zone_id, zone_version, bucket_key, seq, kind, checks, blocked, reason, critical, cost, spent,
    spent_total, remaining, zone_limit, retry_after_us, delay_us, level, strikes, target_at, created_at, prev_at,
    ends_at, member, note, actor, login, salt, row_hash, band
)
select
    unhex(j.value ->> 0), j.value ->> 1, j.value ->> 2, j.value ->> 3, j.value ->> 4, j.value ->> 5, j.value ->> 6,
    j.value ->> 7, j.value ->> 8, j.value ->> 9, j.value ->> 10, j.value ->> 11, j.value ->> 12, j.value ->> 13,
    j.value ->> 14, j.value ->> 15, j.value ->> 16, j.value ->> 17, j.value ->> 18, j.value ->> 19, j.value ->> 20,
    j.value ->> 21, j.value ->> 22, j.value ->> 23, j.value ->> 24, j.value ->> 25, j.value ->> 26,
    unhex(j.value ->> 27), unhex(j.value ->> 28), j.value ->> 29
from jsonb_each(?1) j
