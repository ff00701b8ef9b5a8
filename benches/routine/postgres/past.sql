-- A month of decisions of a zone, so many rows of 200,000 buckets: three of eight are blocked.
insert into zone_txn (
    seq, cost, spent, spent_total, remaining, zone_limit, retry_after_us, created_at, txn_id, zone_id, zone_version,
    blocked, kind, reason, bucket_key, row_hash
)
select n / 200000 + 1, 1, (n / 200000 % 8 < 5)::int, n / 200000 + 1, 0, 5,
    case when n / 200000 % 8 >= 5 then 1000 end,
    now() - interval '30 days' + n * (interval '30 days' / $1), gen_random_uuid(), $2, 1,
    n / 200000 % 8 >= 5, 'check', case when n / 200000 % 8 < 5 then 'within_limit' else 'over_limit' end,
    'past:' || n * 7919 % 200000, sha256(int8send(n))
from generate_series(0, $1::bigint - 1) n
