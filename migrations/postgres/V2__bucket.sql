-- Buckets: the row that is locked, and the head of the bucket's ledger.

create table zone_bucket_lock (
    seq          bigint      not null default 0,
    last_at      timestamptz,
    spent_total  bigint      not null default 0,
    level        bigint,
    zone_id      int         not null,
    zone_version int,
    bucket_key   text        not null collate "C",
    constraint zone_bucket_lock_pk primary key (zone_id, bucket_key),
    constraint zone_bucket_lock_key_ck check (
        octet_length(bucket_key) between 1 and 255
        and bucket_key !~ '[\u0001-\u001f\u007f-\u009f]'
    ),
    constraint zone_bucket_lock_head_ck check (
        seq >= 0
        and spent_total >= 0
        and level >= 0
        and (seq = 0) = (last_at is null)
        and (seq = 0) = (zone_version is null)
    )
) with (
    -- Each decision updates one row and none of its indexed columns. Room in the page keeps the new
    -- version beside the old one, so that the primary key is not written (a heap-only update).
    fillfactor = 60,
    -- A hot bucket leaves a dead version with each decision; clear them before they add up.
    autovacuum_vacuum_scale_factor = 0.02
);

comment on table zone_bucket_lock is 'One row per bucket: locked by every recorded check, and the head of its ledger.';
comment on column zone_bucket_lock.zone_id is 'The zone.';
comment on column zone_bucket_lock.bucket_key is 'The subject: 1 to 255 bytes, compared byte by byte.';
comment on column zone_bucket_lock.seq is 'seq of the last ledger row; 0 when there is none.';
comment on column zone_bucket_lock.last_at is 'created_at of the last ledger row.';
comment on column zone_bucket_lock.spent_total is 'spent_total of the last ledger row.';
comment on column zone_bucket_lock.level is 'level of the last ledger row.';
comment on column zone_bucket_lock.zone_version is 'zone_version of the last ledger row.';
