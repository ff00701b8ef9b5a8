-- Buckets: the head of each bucket's ledger. (Here the whole database is locked, not the row.)

create table zone_bucket_lock (
    zone_id      integer not null, -- the zone
    bucket_key   text    not null, -- the subject: 1 to 255 bytes, compared byte by byte
    seq          integer not null, -- of the last ledger row; 0 where there is none
    last_at      integer,          -- its created_at
    spent_total  integer not null, -- its spent_total
    level        integer,          -- its level
    zone_version integer,          -- its zone_version
    strikes      integer not null, -- its strikes
    banned_until integer,          -- when the last ban ends; null when there was none, or it was lifted
    bans         integer not null default 0, -- bans that followed each other
    ban_strikes  integer not null default 0, -- strikes when the last ban began
    carried      integer,          -- a charge in place of all that was spent before the last change of policy that forgot or rescaled it
    carried_at   integer,          -- when that policy changed
    carried_total integer,         -- spent_total at that time
    carried_seq  integer,          -- seq at that time
    override_seq integer,          -- the override in force, as a row of zone_override
    holding      integer not null default 0, -- 1 when zone_hold has, or had, rows of the bucket
    salt         blob    not null, -- random; in the hashes of the key and of texts, so that they cannot be guessed
    row_hash     blob    not null, -- of the last ledger row; where the bucket was moved, SHA-256 over that and moved_to
    moved_to     text,             -- the database that has the bucket now, by the name that its callers know; null for this one; where it is not null nothing happens in the bucket any more
    moved_by     text,             -- null: there are no users here
    shapes       text,             -- what requests of each shape came to that settled lately: a list of name, samples, average in 256ths of a unit, and microseconds since 1970; null where nothing did
    constraint zone_bucket_lock_pk primary key (zone_id, bucket_key),
    constraint zone_bucket_lock_key_ck check (
        length(cast(bucket_key as blob)) between 1 and 255
        and bucket_key not glob '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*'
        and bucket_key not glob 'erased:*'
    ),
    constraint zone_bucket_lock_carried_ck check (
        (carried is null) = (carried_at is null)
        and (carried is null) = (carried_total is null)
        and (carried is null) = (carried_seq is null)
    ),
    constraint zone_bucket_lock_head_ck check (
        spent_total >= 0
        and seq >= 0
        and (seq = 0) = (last_at is null)
        and (seq = 0) = (zone_version is null)
        and (moved_to is null or length(moved_to) between 1 and 64)
    )
) strict, without rowid;

-- The part of a charge that ends by itself: it was given back, or a reservation, a slot or a member runs out.
create table zone_hold (
    zone_id    integer not null, -- the zone
    bucket_key text    not null, -- the bucket
    seq        integer not null, -- the row of the charge
    charged_at integer not null, -- when the charge was made
    amount     integer not null, -- how much of it ends
    ends_at    integer not null, -- when: from then on it does not count
    member     text,             -- the member that it stands for, where members are counted
    constraint zone_hold_pk primary key (zone_id, bucket_key, seq),
    constraint zone_hold_amount_ck check (amount >= 0)
) strict, without rowid;

-- The holds that end after a time: read by levels, slots, members, and exact waits.
create index zone_hold_ends on zone_hold (zone_id, bucket_key, ends_at);

-- The ends of the charges in a window: read by windows.
create index zone_hold_charged on zone_hold (zone_id, bucket_key, charged_at);

-- The load of each queue: what its items add up to, so that an offer need not add them up.
create table zone_queue (
    zone_id    integer not null, -- the zone
    bucket_key text    not null, -- the queue
    waiting    integer not null, -- units that wait
    away       integer not null, -- units that are taken, or were given back for a time
    settled_at integer,          -- by when items have become something else without a row, where so many were due at once that a row had to wait for them; null for never; no row comes before it
    constraint zone_queue_pk primary key (zone_id, bucket_key),
    constraint zone_queue_load_ck check (waiting >= 0 and away >= 0)
) strict, without rowid;

-- The items that are in queues: what their rows lead to, as of the last call that changed the queue.
create table zone_item (
    zone_id     integer not null, -- the zone
    bucket_key  text    not null, -- the queue
    seq         integer not null, -- the row of the offer
    txn_id      blob    not null, -- the transaction that names it
    cost        integer not null, -- units
    band        integer not null, -- how important it is: 0, the most, to 255
    offered_at  integer not null, -- when it was offered
    deadline_at integer,          -- when nobody waits for it any longer; null for never
    place       text    not null, -- waiting; away, taken or given back for a time; dead, taken too often
    due_at      integer,          -- when something becomes of it by itself; null for never
    takes       integer not null, -- how often it was taken
    is_last     integer not null, -- 1 when it is dead once the time of who took it is over
    receipt     integer,          -- the row of the last take, while who took it may say something of it
    payload     text,             -- what was given with it, as JSON
    constraint zone_item_pk primary key (zone_id, bucket_key, seq),
    constraint zone_item_place_ck check (place in ('waiting', 'away', 'dead')),
    constraint zone_item_cost_ck check (cost between 1 and 1099511627776 and band between 0 and 255 and takes >= 0 and is_last in (0, 1)),
    constraint zone_item_payload_ck check (length(cast(payload as blob)) <= 8192)
) strict;

-- The order in which items are taken, and, backwards, in which they make room.
create index zone_item_order on zone_item (zone_id, bucket_key, place, band, seq);

-- The items that change by themselves: read by every call.
create index zone_item_due on zone_item (zone_id, bucket_key, due_at, seq);

-- Limits of single buckets, each as its ledger row set it. Note and author are in that row.
create table zone_override (
    zone_id    integer not null, -- the zone
    bucket_key text    not null, -- the bucket
    seq        integer not null, -- the ledger row that set it
    rate       integer,          -- units admitted per window; null keeps the limit of the zone
    window_us  integer,          -- the window that the rate is per
    burst      integer,          -- capacity, where the algorithm has one; null means the rate
    rate_gcd   integer,          -- common divisor of rate and window_us
    ban_exempt integer not null, -- 1 when blocked checks do not lead to a ban
    ends_at    integer,          -- when it ends; null for never
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
    ),
    constraint zone_override_exempt_ck check (ban_exempt in (0, 1))
) strict, without rowid;

-- The zones in which a row of zone_bucket_lock was ever removed: there a bucket that has none may be in the ledger.
create table zone_bucket_removed (
    zone_id    integer not null, -- the zone
    removed_at integer not null, -- when the first of them was to go
    constraint zone_bucket_removed_pk primary key (zone_id)
) strict, without rowid;

-- One row, of upkeep. (On the servers whoever maintains holds it locked.)
create table zone_upkeep_lock (
    id          integer not null, -- always 1
    finished_at integer,          -- when upkeep was last done to its end; null for never
    constraint zone_upkeep_lock_pk primary key (id),
    constraint zone_upkeep_lock_id_ck check (id = 1)
) strict, without rowid;

insert into zone_upkeep_lock (id) values (1);
