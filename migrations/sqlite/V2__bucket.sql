-- Buckets: the head of each bucket's ledger. (Here the whole database is locked, not the row.)

create table zone_bucket_lock (
    zone_id      integer not null, -- the zone
    bucket_key   text    not null, -- the subject: 1 to 255 bytes, compared byte by byte
    seq          integer not null, -- of the last ledger row
    last_at      integer not null, -- its created_at
    spent_total  integer not null, -- its spent_total
    level        integer,          -- its level
    zone_version integer not null, -- its zone_version
    constraint zone_bucket_lock_pk primary key (zone_id, bucket_key),
    constraint zone_bucket_lock_key_ck check (
        length(cast(bucket_key as blob)) between 1 and 255
        and bucket_key not glob '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*'
    ),
    constraint zone_bucket_lock_head_ck check (seq >= 1 and spent_total >= 0 and (level is null or level >= 0))
) strict, without rowid;
