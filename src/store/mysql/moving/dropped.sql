-- The last dropped row of a bucket that arrives without its oldest ones. The argument lists the columns in this order.
insert into zone_txn_dropped (
    zone_id, bucket_key, seq, spent_total, level, strikes, created_at, zone_version, salt, row_hash
)
select
    j.zone_id, left(cast(j.bucket_key as binary), 255), j.seq, j.spent_total, j.level, j.strikes,
    date_add(timestamp'1970-01-01 00:00:00', interval j.created_at microsecond), j.zone_version, unhex(j.salt),
    unhex(j.row_hash)
from json_table(?, '$[*]' columns (
    zone_id int path '$[0]',
    bucket_key varchar(255) character set utf8mb4 path '$[1]',
    seq bigint path '$[2]',
    spent_total bigint path '$[3]',
    level bigint path '$[4]',
    strikes bigint path '$[5]',
    created_at bigint path '$[6]',
    zone_version int path '$[7]',
    salt varchar(32) character set ascii path '$[8]',
    row_hash varchar(64) character set ascii path '$[9]'
)) j
