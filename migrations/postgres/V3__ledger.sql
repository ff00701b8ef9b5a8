-- The ledger: one row per decision, appended and never changed.
--
-- Partitioned by time from the beginning. A unique key must then contain created_at, so that seq and txn
-- are unique per bucket is held by the bucket's lock, not by an index. There is no default partition (it
-- forbids detaching concurrently); the last one ends at maxvalue, so that nothing fails without upkeep.

create sequence zone_txn_id_seq;

-- Domains for the reason that is given in V2.
create domain zone_txn_kind as text
    constraint zone_txn_kind_ck check (value in (
        'check', 'coalesced', 'reserve', 'lease', 'local', 'refund', 'settle', 'cancel', 'release', 'ban',
        'unban', 'override', 'override_end', 'unchecked',
        'offer', 'take', 'extend', 'done', 'requeue', 'evict'
    ));

comment on domain zone_txn_kind is 'The kind of thing that a row of the ledger records.';

create domain zone_txn_checks as int
    constraint zone_txn_checks_ck check (value >= 1);

comment on domain zone_txn_checks is 'The number of checks that a row of the ledger stands for.';

create table zone_txn (
    id             bigint      not null default nextval('zone_txn_id_seq'),
    seq            bigint      not null,
    cost           bigint      not null,
    spent          bigint      not null,
    spent_total    bigint      not null,
    remaining      bigint      not null,
    zone_limit     bigint      not null,
    retry_after_us bigint,
    delay_us       bigint,
    level          bigint,
    strikes        bigint      not null default 0,
    target_at      timestamptz,
    created_at     timestamptz not null,
    prev_at        timestamptz,
    ends_at        timestamptz,
    txn_id         uuid        not null,
    zone_id        int         not null,
    zone_version   int         not null,
    checks         zone_txn_checks not null default 1,
    blocked        boolean     not null,
    critical       boolean     not null default false,
    band           smallint,
    kind           zone_txn_kind not null,
    reason         text        not null,
    bucket_key     text        not null collate "C",
    member         text collate "C",
    note           text,
    actor          text,
    login          text,
    salt           bytea,
    row_hash       bytea       not null,
    -- The bucket in the order it was written. Read by: the window's start (every sliding-log check), the
    -- history of a bucket. Costs 26 % of the time to insert a row.
    constraint zone_txn_pk primary key (zone_id, bucket_key, created_at, seq)
) partition by range (created_at);

-- The cost of each index was measured on PostgreSQL 18 by inserting 200,000 rows of 100,000 buckets, drawn at random, into
-- a ledger of 300,000, with and without it: its share of 12 µs a row. An index at whose right edge new rows come costs less
-- than the noise, 5 %.

-- Idempotency: was the transaction decided in the bucket? Read by checks whose id the caller chose, by second attempts, by what
-- ends a charge. By a hash of both: the places are short, and ids that begin with the time do not meet in one page, where under
-- SERIALIZABLE 62 % of 32 callers' calls failed who looked there and came there, on buckets of their own. Costs 24 %. To be had by
-- this index alone, the columns are compared besides in a form that answers to no other one: by the bucket's rows a popular bucket
-- takes long, by the transaction's an id of many buckets.
create index zone_txn_bucket_txn on zone_txn (hashtextextended(bucket_key, uuid_hash_extended(txn_id, zone_id)));

-- The rows of a transaction in whatever buckets it touched. Read by the history. Ids that begin with the time come to its right
-- edge.
create index zone_txn_txn on zone_txn (txn_id);

-- The history of a zone by time. New rows go to its right edge.
create index zone_txn_zone on zone_txn (zone_id, created_at, id);

comment on table zone_txn is 'The ledger: every decision of every bucket. Append-only.';
comment on column zone_txn.id is 'Number of the row, unique in the ledger.';
comment on column zone_txn.txn_id is 'The transaction that was decided.';
comment on column zone_txn.zone_id is 'The zone.';
comment on column zone_txn.zone_version is 'The version of the zone that decided.';
comment on column zone_txn.bucket_key is 'The bucket.';
comment on column zone_txn.seq is 'Position in the bucket, from 1 without gaps.';
comment on column zone_txn.kind is
    'The kind of thing that the row records. Of checks: check; reserve, whose charge ends by itself; coalesced, checks that were blocked without asking the database; unchecked, one that passed while it did not answer. Of capacity: lease. Of processes: local, what one took to decide checks by itself. Of queues, under the transaction of the item: offer, take, extend, done, requeue, evict. Of charges, under their transaction: refund, settle, cancel, release. Of the bucket: ban, unban, override, override_end.';
comment on column zone_txn.checks is 'The number of checks that the row stands for: 1, or more in a coalesced one; of a lease, how many clients; of an item of a queue, which take of it.';
comment on column zone_txn.blocked is 'True when the transaction may not pass.';
comment on column zone_txn.reason is 'Why: within_limit, soft, off, unchecked; over_limit, exceeds_limit, banned, held_back; recorded for what is no decision.';
comment on column zone_txn.critical is 'True when the check could take from the reserve.';
comment on column zone_txn.band is 'The importance: 0, the most, to 255; of leases and items of queues.';
comment on column zone_txn.cost is 'The cost that was asked for; what a refund, a cancellation or a release gave back; what a settlement came to.';
comment on column zone_txn.spent is 'The units that were spent.';
comment on column zone_txn.spent_total is 'Sum of spent over the bucket up to and with this row. Never falls.';
comment on column zone_txn.remaining is 'The units that could still be spent after the decision.';
comment on column zone_txn.zone_limit is 'The most that a check like it could have spent.';
comment on column zone_txn.retry_after_us is 'The least wait that was promised, from created_at; null when allowed or never.';
comment on column zone_txn.delay_us is 'The wait for its turn that the caller was told, from created_at; null but for a leaky queue.';
comment on column zone_txn.level is 'Level after the row; null for algorithms without one. Below 0 where more was settled than there was.';
comment on column zone_txn.strikes is 'The number of blocked checks of the bucket that counted for bans up to and with this row.';
comment on column zone_txn.ends_at is 'When what the row began ends by itself: a reservation, a slot, a member, a ban, an override.';
comment on column zone_txn.member is 'The member that the check was about, where members are counted; the client whose lease it is; of a reservation and its settlement the shape by which the cost was predicted.';
comment on column zone_txn.note is 'Why, as people wrote it.';
comment on column zone_txn.actor is 'The person who did it, as was said, for what people do.';
comment on column zone_txn.login is 'The name by which the session was logged in that did it, for what people do.';
comment on column zone_txn.target_at is 'For rows that undo a charge: when that charge was made.';
comment on column zone_txn.created_at is 'When it was decided, after the lock was held. Never moves backwards within a bucket.';
comment on column zone_txn.salt is 'The bucket''s salt, in its first row; null in all others.';
comment on column zone_txn.row_hash is 'SHA-256 over the hash of the row before it in the bucket and all that the row says.';
comment on column zone_txn.prev_at is 'created_at of the row before it in the bucket; null for the first.';

-- The heads that removed rows leave behind: the last of each bucket, so that what remains still follows
-- something.
create table zone_txn_dropped (
    seq          bigint      not null,
    spent_total  bigint      not null,
    level        bigint,
    strikes      bigint      not null,
    created_at   timestamptz not null,
    zone_id      int         not null,
    zone_version int         not null,
    bucket_key   text        not null collate "C",
    salt         bytea,
    row_hash     bytea       not null,
    constraint zone_txn_dropped_pk primary key (zone_id, bucket_key)
);

comment on table zone_txn_dropped is
    'The last row of each bucket whose old rows were removed. What is left of the ledger follows it.';
comment on column zone_txn_dropped.seq is 'As in that row.';
comment on column zone_txn_dropped.spent_total is 'As in that row.';
comment on column zone_txn_dropped.level is 'As in that row.';
comment on column zone_txn_dropped.strikes is 'As in that row.';
comment on column zone_txn_dropped.created_at is 'As in that row.';
comment on column zone_txn_dropped.zone_id is 'The zone.';
comment on column zone_txn_dropped.zone_version is 'As in that row.';
comment on column zone_txn_dropped.bucket_key is 'The bucket.';
comment on column zone_txn_dropped.salt is 'The bucket''s salt, which its first row had.';
comment on column zone_txn_dropped.row_hash is 'As in that row.';

-- Removals by owners from the ledger: old rows, and the personal data of buckets. A chain of its own for each zone.
-- Nothing in it says whose a bucket was.
create table zone_removal (
    seq         bigint      not null,
    buckets     bigint      not null,
    ledger_rows bigint      not null,
    removed_at  timestamptz not null,
    cut_at      timestamptz,
    zone_id     int         not null,
    kind        text        not null,
    bucket_key  text        collate "C",
    actor       text,
    login       text        default session_user,
    note        text,
    row_hash    bytea       not null,
    constraint zone_removal_pk primary key (zone_id, seq),
    constraint zone_removal_kind_ck check (
        (kind = 'drop' and cut_at is not null and bucket_key is null)
        or (kind = 'erase' and cut_at is null and bucket_key is not null)
    )
);

comment on table zone_removal is
    'Removals by owners from the ledger of each zone: runs of upkeep that dropped old rows, and erasures. Append-only.';
comment on column zone_removal.seq is 'Position among those of the zone, from 1 without gaps.';
comment on column zone_removal.buckets is 'Of how many buckets.';
comment on column zone_removal.ledger_rows is
    'Of a drop: how many rows of the ledger went, or were to go when it began. Of an erasure: how many rows of the ledger the bucket had.';
comment on column zone_removal.removed_at is 'When. Never moves backwards within a zone.';
comment on column zone_removal.cut_at is 'Of a drop: rows decided before this time went.';
comment on column zone_removal.zone_id is 'The zone.';
comment on column zone_removal.kind is 'drop, by upkeep; erase.';
comment on column zone_removal.bucket_key is
    'Of an erasure: what stands in the place of the key, erased: and the hash that its chain begins with. Nothing happens in that bucket any more.';
comment on column zone_removal.actor is 'Of an erasure: who did it, as was said.';
comment on column zone_removal.login is 'The name by which the session was logged in that did it.';
comment on column zone_removal.note is 'Of an erasure: why. It does not name the person.';
comment on column zone_removal.row_hash is 'SHA-256 over the hash of the row before it in the zone and all that the row says.';

do $$
declare
    -- The first partition covers this month and the next; upkeep splits what follows while it is empty. In UTC, whatever
    -- the session's time zone is and calls itself.
    v_end constant text := to_char(
        date_trunc('month', now() at time zone interval '0') + interval '2 months', 'YYYY-MM-DD HH24:MI:SS+00'
    );
begin
    execute format('create table zone_txn_first partition of zone_txn for values from (minvalue) to (%L)', v_end);
    execute format('create table zone_txn_last partition of zone_txn for values from (%L) to (maxvalue)', v_end);
end
$$;
