-- Buckets: the row that is locked, and the head of the bucket's ledger.

-- PostgreSQL prepares every check constraint of a table anew for each statement that writes a row, also for
-- columns that the statement leaves alone. The rules of a domain are prepared once in a session and looked
-- at only where a value is assigned. On the two tables that every decision writes, that is a fifth of the
-- decision's processor time, so what concerns one column is a domain there.
create domain zone_bucket_key as text collate "C"
    constraint zone_bucket_key_ck check (
        octet_length(value) between 1 and 255
        and value !~ '[\u0001-\u001f\u007f-\u009f]'
    );
create domain zone_amount as bigint
    constraint zone_amount_ck check (value >= 0);

comment on domain zone_bucket_key is 'The subject: 1 to 255 bytes without control characters, compared byte by byte.';
comment on domain zone_amount is 'A count that never is below 0.';

create table zone_bucket_lock (
    seq          zone_amount     not null default 0,
    last_at      timestamptz,
    spent_total  zone_amount     not null default 0,
    level        zone_amount,
    zone_id      int             not null,
    zone_version int,
    bucket_key   zone_bucket_key not null,
    constraint zone_bucket_lock_pk primary key (zone_id, bucket_key),
    constraint zone_bucket_lock_head_ck check (
        (seq = 0) = (last_at is null)
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
