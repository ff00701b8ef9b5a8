-- Zones: the policy in force, and every version that ever was. Times are UTC.
--
-- Statements that define tables commit by themselves here, so each of these files can be run again after
-- it failed half-way.

create table if not exists zone_master (
    id           int           not null auto_increment comment 'number of the zone; never reused',
    name         varchar(100)  character set utf8mb4 collate utf8mb4_bin not null comment 'unique name; never changed',
    description  varchar(1000) character set utf8mb4 not null default '' comment 'what the zone is for',
    algorithm    varchar(20)   character set ascii not null comment 'how it counts: sliding-log or token-bucket',
    rate         bigint        not null comment 'cost units admitted per window',
    window_us    bigint        not null comment 'length of the window in microseconds',
    burst        bigint        null comment 'capacity of a token bucket; null means the rate',
    rate_gcd     bigint        not null comment 'common divisor of rate and window_us: a microsecond adds rate/rate_gcd to a level in which a token is window_us/rate_gcd',
    durability   varchar(20)   character set ascii not null default 'durable' comment 'durable, the one that there is here: how long an answer waits is a setting of the whole server',
    blocked_rows varchar(20)   character set ascii not null default 'each' comment 'each: a row for every blocked check; coalesced: one row may stand for many',
    version      int           not null comment 'version of this row, from 1; each change adds one',
    created_at   datetime(6)   not null comment 'when the zone was made',
    updated_at   datetime(6)   not null comment 'when this version came into force',
    constraint zone_master_pk primary key (id),
    constraint zone_master_name_uq unique (name),
    constraint zone_master_name_ck check (
        char_length(name) between 1 and 100
        and char_length(trim(name)) = char_length(name)
        and name not regexp '[\\x{01}-\\x{1f}\\x{7f}-\\x{9f}]'
    ),
    constraint zone_master_algorithm_ck check (algorithm in ('sliding-log', 'token-bucket')),
    constraint zone_master_rate_ck check (rate between 1 and 1099511627776),
    constraint zone_master_window_ck check (window_us between 1 and 315576000000000),
    constraint zone_master_burst_ck check (
        burst is null
        or (burst between 1 and 1099511627776 and algorithm = 'token-bucket')
    ),
    constraint zone_master_gcd_ck check (
        rate_gcd >= 1 and rate mod rate_gcd = 0 and window_us mod rate_gcd = 0
    ),
    constraint zone_master_exact_ck check (
        algorithm <> 'token-bucket'
        or coalesce(burst, rate)
            <= (9223372036854775807 - rate div rate_gcd) div (window_us div rate_gcd)
    ),
    constraint zone_master_durability_ck check (durability = 'durable'),
    constraint zone_master_blocked_rows_ck check (blocked_rows in ('each', 'coalesced')),
    constraint zone_master_version_ck check (version >= 1)
) engine = innodb comment = 'The use cases and the policy now in force for each.';

create table if not exists zone_version (
    zone_id      int           not null comment 'the zone',
    version      int           not null comment 'its version, from 1 without gaps',
    description  varchar(1000) character set utf8mb4 not null comment 'as in zone_master at that version',
    algorithm    varchar(20)   character set ascii not null comment 'as in zone_master at that version',
    rate         bigint        not null comment 'as in zone_master at that version',
    window_us    bigint        not null comment 'as in zone_master at that version',
    burst        bigint        null comment 'as in zone_master at that version',
    rate_gcd     bigint        not null comment 'as in zone_master at that version',
    durability   varchar(20)   character set ascii not null comment 'as in zone_master at that version',
    blocked_rows varchar(20)   character set ascii not null comment 'as in zone_master at that version',
    changed_at   datetime(6)   not null comment 'when the version came into force',
    changed_by   varchar(1000) character set utf8mb4 not null comment 'who made it',
    constraint zone_version_pk primary key (zone_id, version),
    constraint zone_version_zone_fk foreign key (zone_id) references zone_master (id)
) engine = innodb comment = 'Every version of every zone. Ledger rows name the version that decided them.';
