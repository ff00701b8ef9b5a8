-- Buckets: the row that is locked, and the head of the bucket's ledger.

-- PostgreSQL prepares every check constraint of a table anew for each statement that writes a row, also for
-- columns that the statement leaves alone. The rules of a domain are prepared once in a session and looked
-- at only where a value is assigned. On the two tables that every decision writes, constraints are a fifth of the
-- decision's processor time. So they have none: a rule of one column is a domain, one of several is a condition of each routine
-- that writes them. The key is text like that of all tables of buckets, since Citus co-locates columns of one type only; whoever
-- makes a row casts it.
create domain zone_bucket_key as text collate "C"
    constraint zone_bucket_key_ck check (
        octet_length(value) between 1 and 255
        and value !~ '[\u0001-\u001f\u007f-\u009f]'
        and not starts_with(value, 'erased:')
    );
create domain zone_amount as bigint
    constraint zone_amount_ck check (value >= 0);
create domain zone_database_name as text
    constraint zone_database_name_ck check (char_length(value) between 1 and 64);

comment on domain zone_bucket_key is 'The subject: 1 to 255 bytes without control characters, compared byte by byte. A key that begins with erased: is closed.';
comment on domain zone_amount is 'A count that never is below 0.';
comment on domain zone_database_name is 'A database, by the name that its callers know.';

create table zone_bucket_lock (
    seq           zone_amount     not null default 0,
    last_at       timestamptz,
    spent_total   zone_amount     not null default 0,
    level         bigint,
    strikes       bigint          not null default 0,
    banned_until  timestamptz,
    ban_strikes   bigint          not null default 0,
    carried       bigint,
    carried_at    timestamptz,
    carried_total bigint,
    carried_seq   bigint,
    override_seq  bigint,
    zone_id       int             not null,
    zone_version  int,
    bans          int             not null default 0,
    holding       boolean         not null default false,
    bucket_key    text            not null collate "C",
    salt          bytea           not null,
    row_hash      bytea           not null,
    moved_to      zone_database_name,
    moved_by      text,
    shapes        text,
    sql_at        timestamptz,
    constraint zone_bucket_lock_pk primary key (zone_id, bucket_key)
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
comment on column zone_bucket_lock.strikes is 'strikes of the last ledger row.';
comment on column zone_bucket_lock.banned_until is 'When the last ban ends; null when there was none, or it was lifted.';
comment on column zone_bucket_lock.bans is 'Bans that followed each other.';
comment on column zone_bucket_lock.ban_strikes is 'strikes when the last ban began.';
comment on column zone_bucket_lock.carried is
    'A charge in place of all that was spent before the last change of policy that forgot or rescaled it; null without one.';
comment on column zone_bucket_lock.carried_at is 'When that policy changed.';
comment on column zone_bucket_lock.carried_total is 'spent_total at that time.';
comment on column zone_bucket_lock.carried_seq is 'seq at that time.';
comment on column zone_bucket_lock.override_seq is 'The override in force, as a row of zone_override; null without one.';
comment on column zone_bucket_lock.holding is 'True when zone_hold has, or had, rows of the bucket.';
comment on column zone_bucket_lock.salt is 'Random; in the hashes of the key and of texts, so that they cannot be guessed.';
comment on column zone_bucket_lock.row_hash is
    'row_hash of the last ledger row; before the first, the hash of the bucket''s name. Where the bucket was moved, SHA-256 over that and moved_to.';
comment on column zone_bucket_lock.moved_to is
    'The database that has the bucket now, by the name that its callers know; null for this one. Where it is not null nothing happens in the bucket any more.';
comment on column zone_bucket_lock.moved_by is 'The user of the database who said so.';
comment on column zone_bucket_lock.shapes is
    'The cost that requests of each shape came to that settled lately: a list of name, samples, average in 256ths of a unit, and microseconds since 1970; null where nothing did.';
comment on column zone_bucket_lock.sql_at is 'When a routine last decided here for a caller in SQL; null for never.';
comment on column zone_bucket_lock.zone_version is 'zone_version of the last ledger row.';

-- The part of a charge that ends by itself: what was given back, reserved, or is held by a slot or a member. In zones
-- of members and slots, rows that have ended go when one comes; in others they stay as long as the ledger, like the
-- rows that made them.
create table zone_hold (
    zone_id    int         not null,
    bucket_key text        not null collate "C",
    seq        bigint      not null,
    charged_at timestamptz not null,
    amount     bigint      not null,
    ends_at    timestamptz not null,
    member     text collate "C",
    constraint zone_hold_pk primary key (zone_id, bucket_key, seq),
    constraint zone_hold_amount_ck check (amount >= 0)
);

-- The holds that end after a time: read by levels, slots, members, and exact waits.
create index zone_hold_ends on zone_hold (zone_id, bucket_key, ends_at);

-- The ends of the charges in a window: read by windows.
create index zone_hold_charged on zone_hold (zone_id, bucket_key, charged_at);

comment on table zone_hold is 'The part of a charge that ends by itself: it was given back, or a reservation, a slot or a member runs out.';
comment on column zone_hold.zone_id is 'The zone.';
comment on column zone_hold.bucket_key is 'The bucket.';
comment on column zone_hold.seq is 'The row of the charge.';
comment on column zone_hold.charged_at is 'When the charge was made.';
comment on column zone_hold.amount is 'The amount of it that ends.';
comment on column zone_hold.ends_at is 'When: from then on it does not count.';
comment on column zone_hold.member is 'The member that it stands for, where members are counted.';

create table zone_queue (
    waiting    bigint not null,
    away       bigint not null,
    settled_at timestamptz,
    zone_id    int    not null,
    bucket_key text   not null collate "C",
    constraint zone_queue_pk primary key (zone_id, bucket_key),
    constraint zone_queue_load_ck check (waiting >= 0 and away >= 0)
) with (
    -- As zone_bucket_lock: each call updates one row, and none of its indexed columns.
    fillfactor = 60,
    autovacuum_vacuum_scale_factor = 0.02
);

comment on table zone_queue is 'The load of each queue: what its items add up to, so that an offer need not add them up.';
comment on column zone_queue.zone_id is 'The zone.';
comment on column zone_queue.bucket_key is 'The queue.';
comment on column zone_queue.waiting is 'Units that wait.';
comment on column zone_queue.away is 'Units that are taken, or were given back for a time.';
comment on column zone_queue.settled_at is
    'By when items have become something else without a row, where so many were due at once that a row had to wait for them; null for never. No row comes before it.';

create table zone_item (
    seq         bigint      not null,
    cost        bigint      not null,
    offered_at  timestamptz not null,
    deadline_at timestamptz,
    due_at      timestamptz,
    receipt     bigint,
    txn_id      uuid        not null,
    zone_id     int         not null,
    takes       int         not null,
    band        smallint    not null,
    is_last     boolean     not null,
    place       text        not null,
    bucket_key  text        not null collate "C",
    payload     text,
    constraint zone_item_pk primary key (zone_id, bucket_key, seq),
    constraint zone_item_place_ck check (place in ('waiting', 'away', 'dead')),
    constraint zone_item_cost_ck check (cost between 1 and 1099511627776 and band between 0 and 255 and takes >= 0),
    constraint zone_item_payload_ck check (octet_length(payload) <= 8192)
) with (
    -- Items come and go. Those that have gone are cleared before they add up in front of those that wait.
    autovacuum_vacuum_scale_factor = 0.02
);

-- The order in which items are taken, and, backwards, in which they make room.
create index zone_item_order on zone_item (zone_id, bucket_key, place, band, seq);

-- The items that change by themselves: read by every call.
create index zone_item_due on zone_item (zone_id, bucket_key, due_at, seq);

comment on table zone_item is 'The items that are in queues: what their rows lead to, as of the last call that changed the queue.';
comment on column zone_item.zone_id is 'The zone.';
comment on column zone_item.bucket_key is 'The queue.';
comment on column zone_item.seq is 'The row of the offer.';
comment on column zone_item.txn_id is 'The transaction that names it.';
comment on column zone_item.cost is 'Units.';
comment on column zone_item.band is 'The importance: 0, the most, to 255.';
comment on column zone_item.offered_at is 'When it was offered.';
comment on column zone_item.deadline_at is 'When nobody waits for it any longer; null for never.';
comment on column zone_item.place is 'Waiting; away, taken or given back for a time; dead, taken too often.';
comment on column zone_item.due_at is 'When something becomes of it by itself; null for never.';
comment on column zone_item.takes is 'The number of times that it was taken.';
comment on column zone_item.is_last is 'True when it is dead once the time of who took it is over.';
comment on column zone_item.receipt is 'The row of the last take, while who took it may say something of it.';
comment on column zone_item.payload is 'The payload that was given with it, as JSON.';

create table zone_override (
    zone_id    int         not null,
    bucket_key text        not null collate "C",
    seq        bigint      not null,
    rate       bigint,
    window_us  bigint,
    burst      bigint,
    rate_gcd   bigint,
    ban_exempt boolean     not null,
    ends_at    timestamptz,
    constraint zone_override_pk primary key (zone_id, bucket_key, seq),
    constraint zone_override_rate_ck check (rate is null or rate between 1 and 1099511627776),
    constraint zone_override_window_ck check (
        (window_us is null) = (rate is null)
        and (window_us is null or window_us between 1 and 315576000000000)
    ),
    constraint zone_override_burst_ck check (
        burst is null
        or (rate is not null and burst between 1 and 1099511627776)
    ),
    constraint zone_override_gcd_ck check (
        (rate_gcd is null) = (rate is null)
        and (rate_gcd is null or (rate_gcd >= 1 and rate % rate_gcd = 0 and window_us % rate_gcd = 0))
    ),
    constraint zone_override_exact_ck check (
        rate is null
        or coalesce(burst, rate)
            <= (9223372036854775807 - rate / rate_gcd) / (window_us / rate_gcd)
    )
);

comment on table zone_override is 'Limits of single buckets, each as its ledger row set it. Note and author are in that row.';
comment on column zone_override.zone_id is 'The zone.';
comment on column zone_override.bucket_key is 'The bucket.';
comment on column zone_override.seq is 'The ledger row that set it.';
comment on column zone_override.rate is 'Units admitted per window; null keeps the limit of the zone.';
comment on column zone_override.window_us is 'The window that the rate is per.';
comment on column zone_override.burst is 'Capacity, where the algorithm has one; null means the rate.';
comment on column zone_override.rate_gcd is 'Common divisor of rate and window_us.';
comment on column zone_override.ban_exempt is 'True when blocked checks do not lead to a ban.';
comment on column zone_override.ends_at is 'When it ends; null for never.';

-- The knowledge of upkeep is apart from what operators may change: only the owner writes here.

create table zone_bucket_removed (
    zone_id    int         not null,
    removed_at timestamptz not null,
    constraint zone_bucket_removed_pk primary key (zone_id)
);

comment on table zone_bucket_removed is
    'The zones in which a row of zone_bucket_lock was ever removed: there a bucket that has none may be in the ledger.';
comment on column zone_bucket_removed.zone_id is 'The zone.';
comment on column zone_bucket_removed.removed_at is 'When the first of them was to go.';

create table zone_upkeep_lock (
    id          int         not null,
    finished_at timestamptz,
    constraint zone_upkeep_lock_pk primary key (id),
    constraint zone_upkeep_lock_id_ck check (id = 1)
);

comment on table zone_upkeep_lock is 'One row. Whoever maintains or erases holds it locked: one at a time.';
comment on column zone_upkeep_lock.id is 'Always 1.';
comment on column zone_upkeep_lock.finished_at is 'When upkeep was last done to its end; null for never.';

insert into zone_upkeep_lock (id) values (1);
