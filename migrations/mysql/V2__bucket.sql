-- Buckets: the row that is locked, and the head of the bucket's ledger.
--
-- Keys are bytes: even utf8mb4_bin holds 'a' and 'a ' for equal.

create table if not exists zone_bucket_lock (
    zone_id      int            not null comment 'the zone',
    bucket_key   varbinary(255) not null comment 'the subject: 1 to 255 bytes of UTF-8, compared byte by byte',
    seq          bigint         not null default 0 comment 'seq of the last ledger row; 0 when there is none',
    last_at      datetime(6)    null comment 'created_at of the last ledger row',
    spent_total  bigint         not null default 0 comment 'spent_total of the last ledger row',
    level        bigint         null comment 'level of the last ledger row',
    zone_version int            null comment 'zone_version of the last ledger row',
    constraint zone_bucket_lock_pk primary key (zone_id, bucket_key),
    constraint zone_bucket_lock_key_ck check (length(bucket_key) >= 1),
    constraint zone_bucket_lock_head_ck check (
        seq >= 0
        and spent_total >= 0
        and (level is null or level >= 0)
        and (seq = 0) = (last_at is null)
        and (seq = 0) = (zone_version is null)
    )
) engine = innodb comment = 'One row per bucket: locked by every recorded check, and the head of its ledger.';
