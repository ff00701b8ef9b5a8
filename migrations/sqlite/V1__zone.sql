-- Zones: the policy in force, and every version that ever was. Times are microseconds since 1970 in UTC.

create table zone_master (
    id           integer not null constraint zone_master_pk primary key, -- number of the zone
    name         text    not null constraint zone_master_name_uq unique, -- unique name; never changed
    description  text    not null default '',                            -- what the zone is for
    algorithm    text    not null,                                       -- sliding-log or token-bucket
    rate         integer not null,                                       -- cost units admitted per window
    window_us    integer not null,                                       -- length of the window in microseconds
    burst        integer,                                                 -- capacity of a token bucket; null means the rate
    rate_gcd     integer not null,                                       -- common divisor of rate and window_us
    durability   text    not null default 'durable',                     -- durable: the answer waits for the disk; or relaxed
    blocked_rows text    not null default 'each',                        -- each: a row for every blocked check; or coalesced
    version      integer not null,                                       -- version of this row, from 1
    created_at   integer not null,                                       -- when the zone was made
    updated_at   integer not null,                                       -- when this version came into force
    constraint zone_master_name_ck check (
        length(name) between 1 and 100
        and name = trim(name, ' ')
        and name not glob '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*'
    ),
    constraint zone_master_description_ck check (length(description) <= 1000),
    constraint zone_master_algorithm_ck check (algorithm in ('sliding-log', 'token-bucket')),
    constraint zone_master_rate_ck check (rate between 1 and 1099511627776),
    constraint zone_master_window_ck check (window_us between 1 and 315576000000000),
    constraint zone_master_burst_ck check (
        burst is null
        or (burst between 1 and 1099511627776 and algorithm = 'token-bucket')
    ),
    constraint zone_master_gcd_ck check (
        rate_gcd >= 1 and rate % rate_gcd = 0 and window_us % rate_gcd = 0
    ),
    constraint zone_master_exact_ck check (
        algorithm <> 'token-bucket'
        or coalesce(burst, rate)
            <= (9223372036854775807 - rate / rate_gcd) / (window_us / rate_gcd)
    ),
    constraint zone_master_durability_ck check (durability in ('durable', 'relaxed')),
    constraint zone_master_blocked_rows_ck check (blocked_rows in ('each', 'coalesced')),
    constraint zone_master_version_ck check (version >= 1)
) strict;

-- Ledger rows name the version that decided them.
create table zone_version (
    zone_id      integer not null constraint zone_version_zone_fk references zone_master (id), -- the zone
    version      integer not null,                                                             -- from 1 without gaps
    description  text    not null, -- this and the next seven: as in zone_master at that version
    algorithm    text    not null,
    rate         integer not null,
    window_us    integer not null,
    burst        integer,
    rate_gcd     integer not null,
    durability   text    not null,
    blocked_rows text    not null,
    changed_at   integer not null, -- when the version came into force
    changed_by   text    not null, -- who made it
    constraint zone_version_pk primary key (zone_id, version)
) strict, without rowid;
