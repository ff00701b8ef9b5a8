-- Zones: the policy in force, and every version that ever was. Times are UTC.
--
-- Statements that define tables commit by themselves here, so each of these files can be run again after
-- it failed half-way.

create table if not exists zone_master (
    id           int           not null auto_increment comment 'number of the zone; never reused',
    name         varchar(100)  character set utf8mb4 collate utf8mb4_bin not null comment 'unique name; never changed',
    description  varchar(1000) character set utf8mb4 not null default '' comment 'what the zone is for',
    algorithm       varchar(20)   character set ascii not null comment 'how it counts: the name of an algorithm',
    rate            bigint not null comment 'cost units admitted per window; 0 refuses all',
    window_us       bigint not null comment 'length of the window in microseconds; the longest period of a calendar; the time to live of a slot',
    burst           bigint null comment 'capacity of a token bucket, a leaky bucket or a queue; null means the rate',
    rate_gcd        bigint not null comment 'common divisor of rate and window_us: a microsecond adds rate/rate_gcd to a level in which a token is window_us/rate_gcd',
    slots           int null comment 'slots of a sliding counter',
    calendar        varchar(20)   character set ascii null comment 'the period of a fixed window by the calendar: minute, hour, day or month',
    time_zone       varchar(100)  character set ascii null comment 'whose calendar, by the name in the IANA database',
    soft_rate       bigint null comment 'from how much on a check is allowed with a warning',
    reserve         bigint not null default 0 comment 'how much of the limit only critical checks may take',
    mode            varchar(20)   character set ascii not null default 'enforce' comment 'enforce; shadow, everything passes but is recorded as decided; off, nothing is decided',
    count_blocked   boolean not null default false comment 'whether a check that is over the limit spends its cost all the same',
    ban_after       int null comment 'blocked checks that bring a ban about; null for no bans',
    ban_within_us   bigint null comment 'the time within which they must come',
    ban_for_us      bigint null comment 'how long the first ban takes',
    ban_factor      int null comment 'what a repeated ban is lengthened by',
    ban_max_us      bigint null comment 'the longest ban',
    ban_from        varchar(20)   character set ascii null comment 'from when a ban is counted: block, the check that was blocked; window, when that could have passed',
    on_outage       varchar(20)   character set ascii not null default 'closed' comment 'what callers do when the database does not answer: closed, nothing passes; open, everything does',
    running_buckets varchar(20)   character set ascii not null default 'as-is' comment 'what the change to this version did to buckets in use: as-is, proportional or reset',
    durability      varchar(20)   character set ascii not null default 'durable' comment 'durable, the one that there is here: how long an answer waits is a setting of the whole server',
    blocked_rows    varchar(20)   character set ascii not null default 'each' comment 'each: a row for every blocked check; coalesced: one row may stand for many',
    share           varchar(20)   character set ascii null comment 'how capacity is shared among clients: none, static, proportional, fair or bands; null but for capacity',
    refresh_us      bigint        null comment 'how often a client of capacity asks again, in microseconds',
    safe_capacity   bigint        null comment 'what a client of capacity may use when it cannot ask; null for the capacity by the number of clients',
    guaranteed      bigint        null comment 'of capacity by bands: what each band below the first has before any band has more; null for nothing',
    local_us        bigint        null comment 'for how long a process may decide by itself, in microseconds; null for never. Of a sliding log the window is longer by it than was asked for, of a level the burst is less by what flows in meanwhile',
    backlog         bigint null comment 'of a queue: the most units that wait in it or are taken; null but for queues',
    max_takes       int null comment 'of a queue: how often an item can be taken before it is dead, 1 to 1000',
    clock           text          character set ascii null comment 'the rules of the time zone: the release of the IANA database, the offset at first in seconds, and each change as second:offset',
    beyond_sql      varchar(20)   character set ascii generated always as (case
        when algorithm not in ('sliding-log', 'fixed-window', 'token-bucket', 'leaky-bucket', 'uniform') then 'algorithm'
        when calendar is not null then 'calendar'
        when mode = 'shadow' then 'mode'
        when soft_rate is not null then 'soft limit'
        when reserve > 0 then 'reserve'
        when ban_after is not null then 'ban'
        when count_blocked then 'counted blocks'
        when blocked_rows <> 'each' then 'coalesced rows'
        when running_buckets <> 'as-is' then 'change'
    end) stored comment 'the part of the policy that no routine for SQL callers decides: algorithm, calendar, mode, soft limit, reserve, ban, counted blocks, coalesced rows or change; null for a plain zone',
    version      int           not null comment 'version of this row, from 1; each change adds one',
    created_at   datetime(6)   not null comment 'when the zone was made',
    updated_at   datetime(6)   not null comment 'when this version came into force',
    constraint zone_master_pk primary key (id),
    constraint zone_master_name_uq unique (name),
    constraint zone_master_name_ck check (
        char_length(name) between 1 and 100
        and char_length(trim(name)) = char_length(name)
        and name not regexp '^[0-9]+$' -- for SQL callers, who name a zone by the one or the other
        and name not regexp '[\\x{01}-\\x{1f}\\x{7f}-\\x{9f}]'
    ),
    constraint zone_master_algorithm_ck check (algorithm in (
        'sliding-log', 'fixed-window', 'sliding-counter', 'token-bucket', 'leaky-bucket', 'leaky-queue', 'uniform',
        'distinct', 'concurrency', 'capacity', 'queue'
    )),
    -- Of 0, which refuses all, only windows know.
    constraint zone_master_rate_ck check (
        rate between 1 and 1099511627776
        or (rate = 0 and algorithm in ('sliding-log', 'fixed-window', 'sliding-counter'))
    ),
    constraint zone_master_window_ck check (window_us between 1 and 315576000000000),
    constraint zone_master_burst_ck check (
        burst is null
        or (burst between 1 and 1099511627776 and algorithm in ('token-bucket', 'leaky-bucket', 'leaky-queue', 'queue'))
    ),
    constraint zone_master_gcd_ck check (rate_gcd >= 1 and rate mod rate_gcd = 0 and window_us mod rate_gcd = 0),
    constraint zone_master_exact_ck check (
        algorithm not in ('token-bucket', 'leaky-bucket', 'leaky-queue', 'uniform', 'queue')
        or case when algorithm = 'uniform' then 1 else coalesce(burst, rate) end
            <= (9223372036854775807 - rate div rate_gcd) div (window_us div rate_gcd)
    ),
    constraint zone_master_slots_ck check (
        (slots is null) = (algorithm <> 'sliding-counter')
        and (slots is null or (slots between 1 and 1000 and window_us mod slots = 0))
    ),
    constraint zone_master_calendar_ck check (
        (calendar is null) = (time_zone is null)
        and (calendar is null) = (clock is null)
        and (calendar is null or (calendar in ('minute', 'hour', 'day', 'month') and algorithm = 'fixed-window'))
    ),
    constraint zone_master_soft_ck check (soft_rate is null or (soft_rate >= 0 and soft_rate < greatest(case when algorithm = 'uniform' then 1 else coalesce(burst, rate) end, 1))),
    constraint zone_master_reserve_ck check (reserve >= 0 and reserve < greatest(case when algorithm = 'uniform' then 1 else coalesce(burst, rate) end, 1)),
    constraint zone_master_mode_ck check (mode in ('enforce', 'shadow', 'off')),
    constraint zone_master_count_blocked_ck check (
        not count_blocked
        or (algorithm in ('sliding-log', 'fixed-window', 'sliding-counter') and blocked_rows = 'each')
    ),
    constraint zone_master_ban_ck check (
        (
            ban_after is null and ban_within_us is null and ban_for_us is null and ban_factor is null
            and ban_max_us is null and ban_from is null
        )
        or (
            ban_after >= 1 and ban_within_us between 1 and 315576000000000 and ban_for_us between 1 and 315576000000000
            and ban_factor between 1 and 1000 and ban_max_us between ban_for_us and 315576000000000
            and ban_from in ('block', 'window')
            and ban_after is not null and ban_within_us is not null and ban_for_us is not null
            and ban_factor is not null and ban_max_us is not null and ban_from is not null
        )
    ),
    constraint zone_master_on_outage_ck check (on_outage in ('closed', 'open')),
    constraint zone_master_running_buckets_ck check (running_buckets in ('as-is', 'proportional', 'reset')),
    constraint zone_master_durability_ck check (durability = 'durable'),
    constraint zone_master_blocked_rows_ck check (blocked_rows in ('each', 'coalesced')),
    constraint zone_master_share_ck check (
        (share is null) = (algorithm <> 'capacity')
        and (share is null) = (refresh_us is null)
        and (
            share is null
            or (
                share in ('none', 'static', 'proportional', 'fair', 'bands') and refresh_us between 1 and window_us
                and soft_rate is null and reserve = 0 and mode = 'enforce' and ban_after is null and blocked_rows = 'each'
            )
        )
        and (safe_capacity is null or (share is not null and safe_capacity between 0 and 1099511627776))
        and (guaranteed is null or (share is not null and share = 'bands' and guaranteed between 0 and rate))
    ),
    constraint zone_master_local_ck check (
        local_us is null
        or (
            algorithm in ('sliding-log', 'fixed-window', 'token-bucket', 'leaky-bucket')
            and local_us between 1 and window_us - 1
        )
    ),
    constraint zone_master_queue_ck check (
        (backlog is null) = (algorithm <> 'queue')
        and (backlog is null) = (max_takes is null)
        and (
            backlog is null
            or (
                backlog between 1 and 1099511627776 and max_takes between 1 and 1000
                and soft_rate is null and reserve = 0 and mode = 'enforce' and ban_after is null and blocked_rows = 'each'
            )
        )
    ),
    constraint zone_master_version_ck check (version >= 1)
) engine = innodb comment = 'The use cases and the policy now in force for each.';

create table if not exists zone_version (
    zone_id      int           not null comment 'the zone',
    version      int           not null comment 'its version, from 1 without gaps',
    description  varchar(1000) character set utf8mb4 not null comment 'as in zone_master at that version',
    algorithm       varchar(20)   character set ascii not null comment 'as in zone_master at that version',
    rate            bigint not null comment 'as in zone_master at that version',
    window_us       bigint not null comment 'as in zone_master at that version',
    burst           bigint null comment 'as in zone_master at that version',
    rate_gcd        bigint not null comment 'as in zone_master at that version',
    slots           int null comment 'as in zone_master at that version',
    calendar        varchar(20)   character set ascii null comment 'as in zone_master at that version',
    time_zone       varchar(100)  character set ascii null comment 'as in zone_master at that version',
    soft_rate       bigint null comment 'as in zone_master at that version',
    reserve         bigint not null comment 'as in zone_master at that version',
    mode            varchar(20)   character set ascii not null comment 'as in zone_master at that version',
    count_blocked   boolean not null comment 'as in zone_master at that version',
    ban_after       int null comment 'as in zone_master at that version',
    ban_within_us   bigint null comment 'as in zone_master at that version',
    ban_for_us      bigint null comment 'as in zone_master at that version',
    ban_factor      int null comment 'as in zone_master at that version',
    ban_max_us      bigint null comment 'as in zone_master at that version',
    ban_from        varchar(20)   character set ascii null comment 'as in zone_master at that version',
    on_outage       varchar(20)   character set ascii not null comment 'as in zone_master at that version',
    running_buckets varchar(20)   character set ascii not null comment 'as in zone_master at that version',
    durability      varchar(20)   character set ascii not null comment 'as in zone_master at that version',
    blocked_rows    varchar(20)   character set ascii not null comment 'as in zone_master at that version',
    share           varchar(20)   character set ascii null comment 'as in zone_master at that version',
    refresh_us      bigint        null comment 'as in zone_master at that version',
    safe_capacity   bigint        null comment 'as in zone_master at that version',
    guaranteed      bigint        null comment 'as in zone_master at that version',
    local_us        bigint        null comment 'as in zone_master at that version',
    backlog         bigint null comment 'as in zone_master at that version',
    max_takes       int null comment 'as in zone_master at that version',
    clock           text          character set ascii null comment 'as in zone_master at that version',
    changed_at   datetime(6)   not null comment 'when the version came into force',
    changed_by   varchar(1000) character set utf8mb4 not null comment 'who made it, as was said',
    login        varchar(400)  character set utf8mb4 null default (user()) comment 'by which name, and from where, the session was logged in that made it',
    row_hash     binary(32)    not null comment 'SHA-256 over the hash of the version before it and all that it says',
    constraint zone_version_pk primary key (zone_id, version),
    constraint zone_version_zone_fk foreign key (zone_id) references zone_master (id)
) engine = innodb comment = 'Every version of every zone. Ledger rows name the version that decided them.';

create table if not exists zone_calendar (
    zone_id   int    not null comment 'the zone',
    version   int    not null comment 'its version',
    starts_us bigint not null comment 'from when on, in UTC, the clock goes so',
    ends_us   bigint not null comment 'when it is set again',
    offset_us bigint not null comment 'what it shows, less UTC',
    shown_us  bigint not null comment 'what it has shown before; where it was set back, time stands still until it shows more',
    constraint zone_calendar_pk primary key (zone_id, version, starts_us),
    constraint zone_calendar_version_fk foreign key (zone_id, version) references zone_version (zone_id, version)
) engine = innodb comment = 'The clock of a version as the routines read it. Times are microseconds since 1970.';

-- By which name this database is known where several decide together. A program that calls it by another one would
-- send it the buckets of another.

create table if not exists tallygate_shard (
    one   boolean     not null default true comment 'always true',
    name  varchar(63) character set ascii collate ascii_bin not null comment 'its name',
    among text        character set ascii collate ascii_bin not null comment 'the names of all that decide, in order, with a space between them: from them it follows which keys are its own',
    will  text        character set ascii collate ascii_bin not null comment 'the same once the list has changed; like among where no change is under way',
    constraint tallygate_shard_pk primary key (one),
    constraint tallygate_shard_one_ck check (one = true)
) comment = 'By which name this database is known among several; at most one row.';
