-- The ledger: one row per decision, appended and never changed. SQLite has no partitions.

create table zone_txn (
    id             integer not null constraint zone_txn_pk primary key autoincrement, -- number of the row
    txn_id         blob    not null, -- the transaction that was decided: 16 bytes
    zone_id        integer not null, -- the zone
    zone_version   integer not null, -- the version of the zone that decided
    bucket_key     text    not null, -- the bucket
    seq            integer not null, -- position in the bucket, from 1 without gaps
    kind           text    not null, -- of checks: check; reserve, whose charge ends by itself; coalesced, blocked without asking; unchecked. Of capacity: lease. Of processes: local, what one took to decide checks by itself. Of queues, under the transaction of the item: offer, take, extend, done, requeue, evict. Of charges, under their transaction: refund, settle, cancel, release. Of the bucket: ban, unban, override, override_end
    checks         integer not null default 1, -- how many checks the row stands for
    blocked        integer not null, -- 1 when the transaction may not pass
    reason         text    not null, -- within_limit, soft, off, unchecked; over_limit, exceeds_limit, banned, held_back; recorded for what is no decision
    critical       integer not null default 0, -- 1 when the check could take from the reserve
    band           integer,                    -- how important what was asked is: 0, the most, to 255; of leases
    cost           integer not null, -- what was asked for; what a refund, a cancellation or a release gave back; what a settlement came to
    spent          integer not null, -- what was spent
    spent_total    integer not null, -- sum of spent over the bucket up to and with this row; never falls
    remaining      integer not null, -- what could still be spent after the decision
    zone_limit     integer not null, -- the most that a check like it could have spent
    retry_after_us integer,          -- the least wait that was promised; null when allowed or never
    delay_us       integer,          -- how long the caller was told to wait for its turn; null but for a leaky queue
    level          integer,          -- level after the row; below 0 where more was settled than there was
    strikes        integer not null default 0, -- how many blocked checks of the bucket counted for bans up to and with this row
    target_at      integer,          -- for rows that undo a charge: when that charge was made
    created_at     integer not null, -- when it was decided; never moves backwards within a bucket
    prev_at        integer,          -- created_at of the row before it in the bucket; null for the first
    ends_at        integer,          -- when what the row began ends by itself: a reservation, a slot, a member, a ban, an override
    member         text,             -- whom the check was about, where members are counted; whose a lease is; of a reservation and its settlement the shape by which the cost was predicted
    note           text,             -- why, as people wrote it
    actor          text,             -- who did it, as was said, for what people do
    login          text,             -- by which name the session was logged in that did it: null, since SQLite knows no users
    salt           blob,             -- the bucket's salt, in its first row; null in all others
    row_hash       blob    not null, -- SHA-256 over the hash of the row before it in the bucket and all that the row says
    -- A list in a constraint is made anew for every row, so the kind that most rows have is asked for by itself.
    constraint zone_txn_kind_ck check (kind = 'check' or kind in (
        'coalesced', 'reserve', 'lease', 'local', 'refund', 'settle', 'cancel', 'release', 'ban',
        'unban', 'override', 'override_end', 'unchecked',
        'offer', 'take', 'extend', 'done', 'requeue', 'evict'
    )),
    constraint zone_txn_zone_ck check (zone_id between 1 and 2147483647),
    constraint zone_txn_checks_ck check (checks >= 1),
    constraint zone_txn_blocked_ck check (blocked in (0, 1)),
    constraint zone_txn_spent_ck check (spent >= 0 and spent <= cost)
) strict;

-- The cost of each index was measured in batches of 256 over 100,000 buckets, without waiting for the disk: a row
-- and its commit take 19 µs of the processor, of which an index that is changed all over takes half, for the page
-- that it reads, copies, writes to the log and from there to the file. Where one bucket is hot they take 4 µs.

-- The bucket in the order it was written: 9 µs. Read by: the window's start (every sliding-log check), the exact
-- wait (blocked checks), the history of a bucket. With the totals in it, the first two never look at a row.
-- An index on totals would find a wait in one probe instead of one for each bit of the window, and cost every
-- charge 6 µs.
create unique index zone_txn_bucket on zone_txn (zone_id, bucket_key, created_at, seq, spent_total, spent);

-- Idempotency, was this transaction decided in this bucket; and looking up a transaction, in whatever buckets it
-- touched: 2 µs. The transaction comes first, so that ids in the order of time meet in one page; by bucket first it
-- would be 8 µs, as it is for random ids of the caller's own.
create index zone_txn_txn on zone_txn (txn_id, zone_id, bucket_key);

-- The history of a zone by time: 1 µs.
create index zone_txn_zone on zone_txn (zone_id, created_at, id);

-- The heads that removed rows leave behind: the last of each bucket, so that what remains still follows
-- something.
create table zone_txn_dropped (
    zone_id      integer not null, -- the zone
    bucket_key   text    not null, -- the bucket
    seq          integer not null, -- as in that row
    spent_total  integer not null, -- as in that row
    level        integer,          -- as in that row
    strikes      integer not null, -- as in that row
    created_at   integer not null, -- as in that row
    zone_version integer not null, -- as in that row
    salt         blob,             -- the bucket's salt, which its first row had
    row_hash     blob    not null, -- as in that row
    constraint zone_txn_dropped_pk primary key (zone_id, bucket_key)
) strict, without rowid;

-- Removals by owners from the ledger: old rows, and the personal data of buckets. A chain of its own for each zone.
-- Nothing in it says whose a bucket was. Append-only.
create table zone_removal (
    zone_id     integer not null, -- the zone
    seq         integer not null, -- position among those of the zone, from 1 without gaps
    kind        text    not null, -- drop, by upkeep; erase
    removed_at  integer not null, -- when; never moves backwards within a zone
    cut_at      integer,          -- of a drop: rows decided before this time went
    bucket_key  text,             -- of an erasure: what stands in the place of the key, erased: and the hash that its chain begins with; nothing happens in that bucket any more
    buckets     integer not null, -- of how many buckets
    ledger_rows integer not null, -- of a drop: how many rows of the ledger went, or were to go when it began; of an erasure: how many rows of the ledger the bucket had
    actor       text,             -- of an erasure: who did it, as was said
    login       text,             -- by which name the session was logged in that did it: null, since SQLite knows no users
    note        text,             -- of an erasure: why; it does not name the person
    row_hash    blob    not null, -- SHA-256 over the hash of the row before it in the zone and all that the row says
    constraint zone_removal_pk primary key (zone_id, seq),
    constraint zone_removal_kind_ck check (
        (kind = 'drop' and cut_at is not null and bucket_key is null)
        or (kind = 'erase' and cut_at is null and bucket_key is not null)
    )
) strict, without rowid;

-- A row and its bucket's head are one statement, so that a call which is cut between them cannot exist. And a row
-- that does not follow the head's is refused: nobody decides beside the write lock. Two triggers, so that each finds
-- the head's place once: the first row of a bucket makes its head, any later one moves it. They cost 0.7 µs, and
-- 8 µs more for the head's page where keys are many.
create trigger zone_txn_first after insert on zone_txn
when new.seq = 1
begin
    insert into zone_bucket_lock (
        zone_id, bucket_key, seq, last_at, spent_total, level, zone_version, strikes, salt, row_hash
    )
    values (
        new.zone_id, new.bucket_key, new.seq, new.created_at, new.spent_total, new.level, new.zone_version, new.strikes,
        new.salt, new.row_hash
    )
    on conflict (zone_id, bucket_key) do update
    set seq = excluded.seq,
        last_at = excluded.last_at,
        spent_total = excluded.spent_total,
        level = excluded.level,
        zone_version = excluded.zone_version,
        strikes = excluded.strikes,
        row_hash = excluded.row_hash
    where seq = 0;
    select raise(abort, 'the bucket has rows; begin with BEGIN IMMEDIATE')
    where changes() = 0;
end;

create trigger zone_txn_next after insert on zone_txn
when new.seq <> 1
begin
    update zone_bucket_lock
    set seq = new.seq,
        last_at = new.created_at,
        spent_total = new.spent_total,
        level = new.level,
        zone_version = new.zone_version,
        strikes = new.strikes,
        row_hash = new.row_hash
    where zone_id = new.zone_id and bucket_key = new.bucket_key and seq = new.seq - 1;
    select raise(abort, 'a row does not follow the last one of its bucket; begin with BEGIN IMMEDIATE')
    where changes() = 0;
end;
