-- The tables of the seed's way of counting. The file's write lock does what the row per bucket does elsewhere.

create table seed_zone (
    id          integer primary key,
    description text,
    rate        integer not null,
    "window"    integer not null
);

create table seed_bucket_lock (
    bucket_key text unique
);

create table seed_txn (
    id         integer primary key,
    zone_id    integer,
    bucket_key text,
    blocked    integer,
    created_at integer default (unixepoch())
);

create index seed_txn_bucket on seed_txn (zone_id, bucket_key, created_at);
