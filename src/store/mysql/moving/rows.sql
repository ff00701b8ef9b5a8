-- Rows of a bucket that arrives. The argument lists the columns in this order.
insert into zone_txn (
    txn_id, zone_id, zone_version, bucket_key, seq, kind, checks, blocked, reason, critical, cost, spent,
    spent_total, remaining, zone_limit, retry_after_us, delay_us, level, strikes, target_at, created_at, prev_at,
    ends_at, member, note, actor, login, salt, row_hash, band
)
select
    unhex(j.txn_id), j.zone_id, j.zone_version, left(cast(j.bucket_key as binary), 255), j.seq, j.kind, j.checks,
    j.blocked, j.reason, j.critical, j.cost, j.spent, j.spent_total, j.remaining, j.zone_limit, j.retry_after_us,
    j.delay_us, j.level, j.strikes, date_add(timestamp'1970-01-01 00:00:00', interval j.target_at microsecond),
    date_add(timestamp'1970-01-01 00:00:00', interval j.created_at microsecond),
    date_add(timestamp'1970-01-01 00:00:00', interval j.prev_at microsecond),
    date_add(timestamp'1970-01-01 00:00:00', interval j.ends_at microsecond), left(cast(j.member as binary), 255),
    j.note, j.actor, j.login, unhex(j.salt), unhex(j.row_hash), j.band
from json_table(?, '$[*]' columns (
    txn_id varchar(32) character set ascii path '$[0]',
    zone_id int path '$[1]',
    zone_version int path '$[2]',
    bucket_key varchar(255) character set utf8mb4 path '$[3]',
    seq bigint path '$[4]',
    kind varchar(20) character set ascii path '$[5]',
    checks int path '$[6]',
    blocked int path '$[7]',
    reason varchar(20) character set ascii path '$[8]',
    critical int path '$[9]',
    cost bigint path '$[10]',
    spent bigint path '$[11]',
    spent_total bigint path '$[12]',
    remaining bigint path '$[13]',
    zone_limit bigint path '$[14]',
    retry_after_us bigint path '$[15]',
    delay_us bigint path '$[16]',
    level bigint path '$[17]',
    strikes bigint path '$[18]',
    target_at bigint path '$[19]',
    created_at bigint path '$[20]',
    prev_at bigint path '$[21]',
    ends_at bigint path '$[22]',
    member varchar(255) character set utf8mb4 path '$[23]',
    note varchar(1000) character set utf8mb4 path '$[24]',
    actor varchar(1000) character set utf8mb4 path '$[25]',
    login varchar(400) character set utf8mb4 path '$[26]',
    salt varchar(32) character set ascii path '$[27]',
    row_hash varchar(64) character set ascii path '$[28]',
    band int path '$[29]'
)) j
