-- Zones: the policy in force, and every version that ever was. Times are microseconds since 1970 in UTC.

create table zone_master (
    id           integer not null constraint zone_master_pk primary key autoincrement, -- number of the zone; never given twice
    name         text    not null constraint zone_master_name_uq unique, -- unique name; never changed
    description  text    not null default '',                            -- what the zone is for
    algorithm       text    not null, -- how it counts: the name of an algorithm
    rate            integer not null, -- cost units admitted per window; 0 refuses all
    window_us       integer not null, -- length of the window in microseconds; the longest period of a calendar; the time to live of a slot
    burst           integer, -- capacity of a token bucket, a leaky bucket or a queue; null means the rate
    rate_gcd        integer not null, -- common divisor of rate and window_us: a microsecond adds rate/rate_gcd to a level in which a token is window_us/rate_gcd
    slots           integer, -- slots of a sliding counter
    calendar        text, -- the period of a fixed window by the calendar: minute, hour, day or month
    time_zone       text, -- whose calendar, by the name in the IANA database
    soft_rate       integer, -- from how much on a check is allowed with a warning
    reserve         integer not null default 0, -- how much of the limit only critical checks may take
    mode            text    not null default 'enforce', -- enforce; shadow, everything passes but is recorded as decided; off, nothing is decided
    count_blocked   integer not null default 0, -- whether a check that is over the limit spends its cost all the same
    ban_after       integer, -- blocked checks that bring a ban about; null for no bans
    ban_within_us   integer, -- the time within which they must come
    ban_for_us      integer, -- how long the first ban takes
    ban_factor      integer, -- what a repeated ban is lengthened by
    ban_max_us      integer, -- the longest ban
    ban_from        text, -- from when a ban is counted: block, the check that was blocked; window, when that could have passed
    on_outage       text    not null default 'closed', -- what callers do when the database does not answer: closed, nothing passes; open, everything does
    running_buckets text    not null default 'as-is', -- what the change to this version did to buckets in use: as-is, proportional or reset
    durability      text    not null default 'durable', -- durable: the answer waits until the decision is on the disk; relaxed: it does not
    blocked_rows    text    not null default 'each', -- each: a row for every blocked check; coalesced: one row may stand for many
    share           text,    -- how capacity is shared among clients: none, static, proportional, fair or bands; null but for capacity
    refresh_us      integer, -- how often a client of capacity asks again, in microseconds
    safe_capacity   integer, -- what a client of capacity may use when it cannot ask; null for the capacity by the number of clients
    guaranteed      integer, -- of capacity by bands: what each band below the first has before any band has more; null for nothing
    local_us        integer, -- for how long a process may decide by itself, in microseconds; null for never. Of a sliding log the window is longer by it than was asked for, of a level the burst is less by what flows in meanwhile
    backlog         integer, -- of a queue: the most units that wait in it or are taken; null but for queues
    max_takes       integer, -- of a queue: how often an item can be taken before it is dead, 1 to 1000
    clock           text, -- the rules of the time zone: the release of the IANA database, the offset at first in seconds, and each change as second:offset
    -- The part of the policy that no routine for SQL callers of other databases decides; null for a plain zone.
    beyond_sql      text generated always as (case
        when algorithm not in ('sliding-log', 'fixed-window', 'token-bucket', 'leaky-bucket', 'uniform') then 'algorithm'
        when calendar is not null then 'calendar'
        when mode = 'shadow' then 'mode'
        when soft_rate is not null then 'soft limit'
        when reserve > 0 then 'reserve'
        when ban_after is not null then 'ban'
        when count_blocked then 'counted blocks'
        when blocked_rows <> 'each' then 'coalesced rows'
        when running_buckets <> 'as-is' then 'change'
    end) stored,
    version      integer not null,                                       -- version of this row, from 1
    created_at   integer not null,                                       -- when the zone was made
    updated_at   integer not null,                                       -- when this version came into force
    constraint zone_master_name_ck check (
        length(name) between 1 and 100
        and name = trim(name, ' ')
        and name glob '*[^0-9]*' -- no number
        and name not glob '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*'
    ),
    constraint zone_master_description_ck check (length(description) <= 1000),
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
    constraint zone_master_gcd_ck check (rate_gcd >= 1 and rate % rate_gcd = 0 and window_us % rate_gcd = 0),
    constraint zone_master_exact_ck check (
        algorithm not in ('token-bucket', 'leaky-bucket', 'leaky-queue', 'uniform', 'queue')
        or case when algorithm = 'uniform' then 1 else coalesce(burst, rate) end
            <= (9223372036854775807 - rate / rate_gcd) / (window_us / rate_gcd)
    ),
    constraint zone_master_slots_ck check (
        (slots is null) = (algorithm <> 'sliding-counter')
        and (slots is null or (slots between 1 and 1000 and window_us % slots = 0))
    ),
    constraint zone_master_calendar_ck check (
        (calendar is null) = (time_zone is null)
        and (calendar is null) = (clock is null)
        and (calendar is null or (calendar in ('minute', 'hour', 'day', 'month') and algorithm = 'fixed-window'))
    ),
    constraint zone_master_soft_ck check (soft_rate is null or (soft_rate >= 0 and soft_rate < max(case when algorithm = 'uniform' then 1 else coalesce(burst, rate) end, 1))),
    constraint zone_master_reserve_ck check (reserve >= 0 and reserve < max(case when algorithm = 'uniform' then 1 else coalesce(burst, rate) end, 1)),
    constraint zone_master_mode_ck check (mode in ('enforce', 'shadow', 'off')),
    constraint zone_master_count_blocked_ck check (
        count_blocked = 0
        or (
            count_blocked = 1
            and algorithm in ('sliding-log', 'fixed-window', 'sliding-counter')
            and blocked_rows = 'each'
        )
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
    constraint zone_master_durability_ck check (durability in ('durable', 'relaxed')),
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
    -- Of 32 bits, as on servers: programs read no others.
    constraint zone_master_version_ck check (id between 1 and 2147483647 and version between 1 and 2147483647)
) strict;

-- Ledger rows name the version that decided them.
create table zone_version (
    zone_id      integer not null constraint zone_version_zone_fk references zone_master (id), -- the zone
    version      integer not null,                                                             -- from 1 without gaps
    description     text    not null, -- this and all up to changed_at: as in zone_master at that version
    algorithm       text    not null,
    rate            integer not null,
    window_us       integer not null,
    burst           integer,
    rate_gcd        integer not null,
    slots           integer,
    calendar        text,
    time_zone       text,
    soft_rate       integer,
    reserve         integer not null,
    mode            text    not null,
    count_blocked   integer not null,
    ban_after       integer,
    ban_within_us   integer,
    ban_for_us      integer,
    ban_factor      integer,
    ban_max_us      integer,
    ban_from        text,
    on_outage       text    not null,
    running_buckets text    not null,
    durability      text    not null,
    blocked_rows    text    not null,
    share           text,
    refresh_us      integer,
    safe_capacity   integer,
    guaranteed      integer,
    local_us        integer,
    backlog         integer,
    max_takes       integer,
    clock           text,
    changed_at   integer not null, -- when the version came into force
    changed_by   text    not null, -- who made it, as was said
    login        text,             -- by which name the session was logged in that made it: null, since SQLite knows no users
    row_hash     blob    not null, -- SHA-256 over the hash of the version before it and all that it says
    constraint zone_version_pk primary key (zone_id, version)
) strict, without rowid;

-- The clock of a version as the routines of other databases read it.
create table zone_calendar (
    zone_id   integer not null, -- the zone
    version   integer not null, -- its version
    starts_us integer not null, -- from when on, in UTC, the clock goes so
    ends_us   integer not null, -- when it is set again
    offset_us integer not null, -- what it shows, less UTC
    shown_us  integer not null, -- what it has shown before; where it was set back, time stands still until it shows more
    constraint zone_calendar_pk primary key (zone_id, version, starts_us),
    constraint zone_calendar_version_fk foreign key (zone_id, version) references zone_version (zone_id, version)
) strict, without rowid;

-- By which name this database is known where several decide together. A program that calls it by another one would
-- send it the buckets of another.
create table tallygate_shard (
    one   integer not null default 1 constraint tallygate_shard_pk primary key, -- always 1
    name  text    not null, -- its name
    among text    not null, -- the names of all that decide, in order, with a space between them: from them it follows which keys are its own
    will  text    not null, -- the same once the list has changed; like among where no change is under way
    constraint tallygate_shard_one_ck check (one = 1)
) strict, without rowid;
