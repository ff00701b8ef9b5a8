-- Rows of which some say more than most. ?1 lists them, their columns in this order; most rows end with salt.
insert into zone_txn (
    txn_id, zone_id, zone_version, bucket_key, seq, kind, checks, blocked, reason, cost, spent, spent_total, remaining,
    zone_limit, retry_after_us, level, created_at, prev_at, row_hash, salt, strikes, critical, delay_us, target_at, ends_at,
    member, note, actor, band
)
select unhex(j.value ->> 0), j.value ->> 1, j.value ->> 2, j.value ->> 3, j.value ->> 4, j.value ->> 5, j.value ->> 6,
    j.value ->> 7, j.value ->> 8, j.value ->> 9, j.value ->> 10, j.value ->> 11, j.value ->> 12, j.value ->> 13,
    j.value ->> 14, j.value ->> 15, j.value ->> 16, j.value ->> 17, unhex(j.value ->> 18), unhex(j.value ->> 19),
    coalesce(j.value ->> 20, 0), coalesce(j.value ->> 21, 0), j.value ->> 22, j.value ->> 23, j.value ->> 24,
    j.value ->> 25, j.value ->> 26, j.value ->> 27, j.value ->> 28
from jsonb_each(?1) j
