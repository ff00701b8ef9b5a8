-- The tables of the seed's way of counting, for MySQL and MariaDB.

create table seed_zone (
    id          int    not null primary key,
    description text,
    rate        int    not null,
    `window`    bigint not null
);

create table seed_bucket_lock (
    bucket_key varchar(255) unique
);

-- The seed names no index on the bucket; without one each check would read, and lock, the whole table.
create table seed_txn (
    id         bigint       not null auto_increment primary key,
    zone_id    int,
    bucket_key varchar(255),
    blocked    tinyint(1),
    created_at timestamp    default current_timestamp,
    index seed_txn_bucket (zone_id, bucket_key, created_at)
);
