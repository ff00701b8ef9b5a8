-- The rows of a bucket with hashes in the place of what is personal, see docs/chain.md, beside those that go. Rows are not
-- changed, since on Citus a row stays where its key belongs. $1 the zone, $2 the key, $3 what stands in its place, $4 the salt.
insert into zone_txn (
    id, seq, cost, spent, spent_total, remaining, zone_limit, retry_after_us, delay_us, level, strikes, target_at, created_at,
    prev_at, ends_at, txn_id, zone_id, zone_version, checks, blocked, critical, band, kind, reason, bucket_key, member, note, actor,
    login, salt, row_hash
)
select t.id, t.seq, t.cost, t.spent, t.spent_total, t.remaining, t.zone_limit, t.retry_after_us, t.delay_us, t.level, t.strikes,
    t.target_at, t.created_at, t.prev_at, t.ends_at, t.txn_id, t.zone_id, t.zone_version, t.checks, t.blocked, t.critical, t.band,
    t.kind, t.reason, $3,
    'erased:' || encode(sha256($4 || convert_to(t.member, 'UTF8')), 'hex'),
    'erased:' || encode(sha256($4 || convert_to(t.note, 'UTF8')), 'hex'),
    'erased:' || encode(sha256($4 || convert_to(t.actor, 'UTF8')), 'hex'),
    'erased:' || encode(sha256($4 || convert_to(t.login, 'UTF8')), 'hex'),
    null, t.row_hash
from zone_txn t
where t.zone_id = $1 and t.bucket_key = $2
