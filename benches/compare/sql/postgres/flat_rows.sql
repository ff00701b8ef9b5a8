-- Rows $4 to $5 - 1 of the ledger of $3 buckets of zone $1, in the order of their time: as if somebody had checked one
-- bucket after the other, from $2 on, one each $8 microseconds. A bucket at its rate $7 of 5 is blocked from there on;
-- of a bucket far below its rate every second row is blocked. $6 is where the bucket's name begins.
insert into zone_txn (
    txn_id, zone_id, zone_version, bucket_key, seq, kind, blocked, reason, cost, spent, spent_total, remaining,
    zone_limit, retry_after_us, created_at, prev_at, row_hash
)
select uuidv7(), $1, 1, r.bucket_key, r.seq, 'check', r.blocked,
    case when r.blocked then 'over_limit' else 'within_limit' end, 1, case when r.blocked then 0 else 1 end,
    r.spent_total, greatest($7 - r.spent_total, 0), $7, case when r.blocked then 1000000 end, r.created_at,
    case when r.seq > 1 then r.created_at - $3 * $8 * interval '1 microsecond' end,
    sha256('')
from (
    select $6 || lpad((i % $3)::text, 6, '0') as bucket_key,
        i / $3 + 1 as seq,
        case when $7 = 5 then i / $3 + 1 > 5 else (i / $3) % 2 = 1 end as blocked,
        case when $7 = 5 then least(i / $3 + 1, 5) else i / $3 / 2 + 1 end as spent_total,
        $2::timestamptz + i * $8 * interval '1 microsecond' as created_at
    from generate_series($4::bigint, $5::bigint - 1) i
) r
