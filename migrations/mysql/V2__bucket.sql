-- Buckets: the row that is locked, and the head of the bucket's ledger.
--
-- Keys are bytes: even utf8mb4_bin holds 'a' and 'a ' for equal.

create table if not exists zone_bucket_lock (
    zone_id      int            not null comment 'the zone',
    bucket_key   varbinary(255) not null comment 'the subject: 1 to 255 bytes of UTF-8, compared byte by byte',
    seq          bigint         not null default 0 comment 'seq of the last ledger row; 0 when there is none',
    last_at      datetime(6)    null comment 'created_at of the last ledger row',
    spent_total  bigint         not null default 0 comment 'spent_total of the last ledger row',
    level        bigint         null comment 'level of the last ledger row',
    zone_version int            null comment 'zone_version of the last ledger row',
    strikes      bigint         not null default 0 comment 'strikes of the last ledger row',
    banned_until datetime(6)    null comment 'when the last ban ends; null when there was none, or it was lifted',
    bans         int            not null default 0 comment 'bans that followed each other',
    ban_strikes  bigint         not null default 0 comment 'strikes when the last ban began',
    carried      bigint         null comment 'a charge in place of all that was spent before the last change of policy that forgot or rescaled it; null without one',
    carried_at   datetime(6)    null comment 'when that policy changed',
    carried_total bigint        null comment 'spent_total at that time',
    carried_seq  bigint         null comment 'seq at that time',
    override_seq bigint         null comment 'the override in force, as a row of zone_override; null without one',
    holding      boolean        not null default false comment 'true when zone_hold has, or had, rows of the bucket',
    salt         binary(16)     not null comment 'random; in the hashes of the key and of texts, so that they cannot be guessed',
    row_hash     binary(32)     not null comment 'row_hash of the last ledger row; before the first, the hash of the name of the bucket; where the bucket was moved, SHA-256 over that and moved_to',
    moved_to     varchar(64)    character set utf8mb4 null comment 'the database that has the bucket now, by the name that its callers know; null for this one; where it is not null nothing happens in the bucket any more',
    moved_by     varchar(400)   character set utf8mb4 null comment 'the user of the database who said so',
    shapes       text           character set utf8mb4 null comment 'what requests of each shape came to that settled lately: a list of name, samples, average in 256ths of a unit, and microseconds since 1970; null where nothing did',
    sql_at       datetime(6)    null comment 'when a routine last decided here for a caller in SQL; null for never',
    constraint zone_bucket_lock_pk primary key (zone_id, bucket_key),
    constraint zone_bucket_lock_key_ck check (length(bucket_key) >= 1 and left(bucket_key, 7) <> 'erased:'),
    constraint zone_bucket_lock_head_ck check (
        seq >= 0
        and spent_total >= 0
        and (seq = 0) = (last_at is null)
        and (seq = 0) = (zone_version is null)
        and (carried is null) = (carried_at is null)
        and (carried is null) = (carried_total is null)
        and (carried is null) = (carried_seq is null)
        and (moved_to is null or moved_to <> '')
    )
) engine = innodb comment = 'One row per bucket: locked by every recorded check, and the head of its ledger.';

-- The part of a charge that ends by itself: what was given back, reserved, or is held by a slot or a member. In zones
-- of members and slots, rows that have ended go when one comes; in others they stay as long as the ledger, like the
-- rows that made them.
create table if not exists zone_hold (
    zone_id    int            not null comment 'the zone',
    bucket_key varbinary(255) not null comment 'the bucket',
    seq        bigint         not null comment 'the row of the charge',
    charged_at datetime(6)    not null comment 'when the charge was made',
    amount     bigint         not null comment 'how much of it ends',
    ends_at    datetime(6)    not null comment 'when: from then on it does not count',
    member     varbinary(255) null comment 'the member that it stands for, where members are counted',
    constraint zone_hold_pk primary key (zone_id, bucket_key, seq),
    constraint zone_hold_amount_ck check (amount >= 0),
    -- The holds that end after a time: read by levels, slots, members, and exact waits.
    index zone_hold_ends (zone_id, bucket_key, ends_at),
    -- The ends of the charges in a window: read by windows.
    index zone_hold_charged (zone_id, bucket_key, charged_at)
) engine = innodb comment = 'The part of a charge that ends by itself: it was given back, or a reservation, a slot or a member runs out.';

create table if not exists zone_queue (
    zone_id    int            not null comment 'the zone',
    bucket_key varbinary(255) not null comment 'the queue',
    waiting    bigint         not null comment 'units that wait',
    away       bigint         not null comment 'units that are taken, or were given back for a time',
    settled_at datetime(6)    null comment 'by when items have become something else without a row, where so many were due at once that a row had to wait for them; null for never; no row comes before it',
    constraint zone_queue_pk primary key (zone_id, bucket_key),
    constraint zone_queue_load_ck check (waiting >= 0 and away >= 0)
) engine = innodb comment = 'The load of each queue: what its items add up to, so that an offer need not add them up.';

create table if not exists zone_item (
    zone_id     int            not null comment 'the zone',
    bucket_key  varbinary(255) not null comment 'the queue',
    seq         bigint         not null comment 'the row of the offer',
    txn_id      binary(16)     not null comment 'the transaction that names it',
    cost        bigint         not null comment 'units',
    band        smallint       not null comment 'how important it is: 0, the most, to 255',
    offered_at  datetime(6)    not null comment 'when it was offered',
    deadline_at datetime(6)    null comment 'when nobody waits for it any longer; null for never',
    place       varchar(20)    character set ascii not null comment 'waiting; away, taken or given back for a time; dead, taken too often',
    due_at      datetime(6)    null comment 'when something becomes of it by itself; null for never',
    takes       int            not null comment 'how often it was taken',
    is_last     boolean        not null comment 'true when it is dead once the time of who took it is over',
    receipt     bigint         null comment 'the row of the last take, while who took it may say something of it',
    payload     varbinary(8192) null comment 'what was given with it, as JSON in UTF-8',
    constraint zone_item_pk primary key (zone_id, bucket_key, seq),
    constraint zone_item_place_ck check (place in ('waiting', 'away', 'dead')),
    constraint zone_item_cost_ck check (cost between 1 and 1099511627776 and band between 0 and 255 and takes >= 0),
    -- The order in which items are taken, and, backwards, in which they make room.
    index zone_item_order (zone_id, bucket_key, place, band, seq),
    -- The items that change by themselves: read by every call.
    index zone_item_due (zone_id, bucket_key, due_at, seq)
) engine = innodb comment = 'The items that are in queues: what their rows lead to, as of the last call that changed the queue.';

create table if not exists zone_override (
    zone_id    int            not null comment 'the zone',
    bucket_key varbinary(255) not null comment 'the bucket',
    seq        bigint         not null comment 'the ledger row that set it',
    rate       bigint         null comment 'units admitted per window; null keeps the limit of the zone',
    window_us  bigint         null comment 'the window that the rate is per',
    burst      bigint         null comment 'capacity, where the algorithm has one; null means the rate',
    rate_gcd   bigint         null comment 'common divisor of rate and window_us',
    ban_exempt boolean        not null comment 'true when blocked checks do not lead to a ban',
    ends_at    datetime(6)    null comment 'when it ends; null for never',
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
        and (rate_gcd is null or (rate_gcd >= 1 and rate mod rate_gcd = 0 and window_us mod rate_gcd = 0))
    ),
    constraint zone_override_exact_ck check (
        rate is null
        or coalesce(burst, rate)
            <= (9223372036854775807 - rate div rate_gcd) div (window_us div rate_gcd)
    )
) engine = innodb comment = 'Limits of single buckets, each as its ledger row set it. Note and author are in that row.';

-- The knowledge of upkeep is apart from what operators may change: only the owner writes here.

create table if not exists zone_bucket_removed (
    zone_id    int         not null comment 'the zone',
    removed_at datetime(6) not null comment 'when the first of them was to go',
    constraint zone_bucket_removed_pk primary key (zone_id)
) engine = innodb comment = 'The zones in which a row of zone_bucket_lock was ever removed: there a bucket that has none may be in the ledger.';

create table if not exists zone_upkeep_lock (
    id          int         not null comment 'always 1',
    finished_at datetime(6) null comment 'when upkeep was last done to its end; null for never',
    constraint zone_upkeep_lock_pk primary key (id),
    constraint zone_upkeep_lock_id_ck check (id = 1)
) engine = innodb comment = 'One row. Whoever maintains or erases holds it locked: one at a time.';

insert into zone_upkeep_lock (id)
values (1)
on duplicate key update id = zone_upkeep_lock.id;
