-- The ledger: one row per decision, appended and never changed.
--
-- A statement that is killed ends a routine where it stands, without its handler, and what the session does next may
-- commit what was done so far. So a row counts once it is sealed, and it is sealed by the one statement that moves its
-- bucket's head. One that never was is no decision: nobody was told of it, and nothing reads it.
--
-- Partitioned by time from the beginning, so every unique key must contain created_at; that seq and txn are
-- unique per bucket is held by the bucket's lock. The one partition ends at maxvalue, so that nothing fails
-- without upkeep.
--
-- The cost of each index was measured on MySQL 9.7 by inserting 10,000 rows at once without it: its share of
-- 19.2 µs of processor time a row. (There was a fifth index, on totals, which cost 20 %.)

create table if not exists zone_txn (
    id             bigint         not null auto_increment comment 'number of the row, unique in the ledger',
    txn_id         binary(16)     not null comment 'the transaction that was decided',
    zone_id        int            not null comment 'the zone',
    zone_version   int            not null comment 'the version of the zone that decided',
    bucket_key     varbinary(255) not null comment 'the bucket',
    seq            bigint         not null comment 'position in the bucket, from 1 without gaps',
    kind           varchar(20)    character set ascii collate ascii_bin not null comment 'what the row records. Of checks: check; reserve, whose charge ends by itself; coalesced, blocked without asking the database; unchecked, passed while it did not answer. Of capacity: lease. Of processes: local, what one took to decide checks by itself. Of queues, under the transaction of the item: offer, take, extend, done, requeue, evict. Of charges, under their transaction: refund, settle, cancel, release. Of the bucket: ban, unban, override, override_end',
    checks         int            not null default 1 comment 'how many checks the row stands for: 1, or more in a coalesced one',
    blocked        boolean        not null comment '1 when the transaction may not pass',
    reason         varchar(20)    character set ascii collate ascii_bin not null comment 'why: within_limit, soft, off, unchecked; over_limit, exceeds_limit, banned, held_back; recorded for what is no decision',
    critical       boolean        not null default false comment 'true when the check could take from the reserve',
    band           smallint       null comment 'how important what was asked is: 0, the most, to 255; of leases',
    cost           bigint         not null comment 'what was asked for; what a refund, a cancellation or a release gave back; what a settlement came to',
    spent          bigint         not null comment 'what was spent',
    spent_total    bigint         not null comment 'sum of spent over the bucket up to and with this row; never falls',
    remaining      bigint         not null comment 'what could still be spent after the decision',
    zone_limit     bigint         not null comment 'the most that a check like it could have spent',
    retry_after_us bigint         null comment 'the least wait that was promised, from created_at; null when allowed or never',
    delay_us       bigint         null comment 'how long the caller was told to wait for its turn, from created_at; null but for a leaky queue',
    level          bigint         null comment 'level after the row; null for algorithms without one; below 0 where more was settled than there was',
    strikes        bigint         not null default 0 comment 'how many blocked checks of the bucket counted for bans up to and with this row',
    target_at      datetime(6)    null comment 'for rows that undo a charge: when that charge was made',
    created_at     datetime(6)    not null comment 'when it was decided, after the lock was held; never moves backwards within a bucket',
    prev_at        datetime(6)    null comment 'created_at of the row before it in the bucket; null for the first',
    ends_at        datetime(6)    null comment 'when what the row began ends by itself: a reservation, a slot, a member, a ban, an override',
    member         varbinary(255) null comment 'whom the check was about, where members are counted; whose a lease is; of a reservation and its settlement the shape by which the cost was predicted',
    note           varchar(1000)  character set utf8mb4 null comment 'why, as people wrote it',
    actor          varchar(1000)  character set utf8mb4 null comment 'who did it, as was said, for what people do',
    login          varchar(400)   character set utf8mb4 null comment 'by which name, and from where, the session was logged in that did it, for what people do',
    salt           binary(16)     null comment 'the salt of the bucket, in its first row; null in all others',
    row_hash       binary(32)     not null comment 'SHA-256 over the hash of the row before it in the bucket and all that the row says',
    sealed         boolean        not null default true comment 'false until the statement that moves the bucket''s head over the row; until then the row does not count',
    -- Rows are stored in the order of their numbers: appended, never spread over the file.
    constraint zone_txn_pk primary key (id, created_at),
    -- The bucket in the order it was written. Read by: the window's start (every sliding-log check), the
    -- history of a bucket. With all four columns given it finds a row by a point read,
    -- which locks no gap. Costs 18 %.
    constraint zone_txn_bucket_uq unique (zone_id, bucket_key, created_at, seq),
    constraint zone_txn_kind_ck check (kind in (
        'check', 'coalesced', 'reserve', 'lease', 'local', 'refund', 'settle', 'cancel', 'release', 'ban',
        'unban', 'override', 'override_end', 'unchecked',
        'offer', 'take', 'extend', 'done', 'requeue', 'evict'
    )),
    constraint zone_txn_checks_ck check (checks >= 1),
    constraint zone_txn_spent_ck check (spent >= 0 and spent <= cost),
    -- No program counts beyond these. The role engine appends rows that it made by itself.
    constraint zone_txn_numbers_ck check (
        remaining >= 0
        and zone_limit between 0 and 1099511627776
        and (retry_after_us is null or retry_after_us >= 0)
        and (delay_us is null or delay_us >= 0)
        and (level is null or level >= -9223372036854775807)
        and (band is null or band between 0 and 255)
    ),
    -- Idempotency: was this transaction decided in this bucket? Read by checks whose id the caller chose, and
    -- by second attempts. Costs 24 %.
    index zone_txn_bucket_txn (zone_id, bucket_key, txn_id),
    -- Looking up a transaction, in whatever buckets it touched. Read by the history. Costs 11 %.
    index zone_txn_txn (txn_id),
    -- The history of a zone by time. Costs 10 %.
    index zone_txn_zone (zone_id, created_at, id)
) engine = innodb comment = 'The ledger: every decision of every bucket. Append-only.'
partition by range columns (created_at) (
    partition zone_txn_last values less than (maxvalue)
);

-- The heads that removed rows leave behind: the last of each bucket, so that what remains still follows
-- something.
create table if not exists zone_txn_dropped (
    zone_id      int            not null comment 'the zone',
    bucket_key   varbinary(255) not null comment 'the bucket',
    seq          bigint         not null comment 'as in that row',
    spent_total  bigint         not null comment 'as in that row',
    level        bigint         null comment 'as in that row',
    strikes      bigint         not null comment 'as in that row',
    created_at   datetime(6)    not null comment 'as in that row',
    zone_version int            not null comment 'as in that row',
    salt         binary(16)     null comment 'the salt of the bucket, which its first row had',
    row_hash     binary(32)     not null comment 'as in that row',
    constraint zone_txn_dropped_pk primary key (zone_id, bucket_key)
) engine = innodb comment = 'The last row of each bucket whose old rows were removed. What is left of the ledger follows it.';

-- Removals by owners from the ledger: old rows, and the personal data of buckets. A chain of its own for each zone.
-- Nothing in it says whose a bucket was.
create table if not exists zone_removal (
    zone_id     int            not null comment 'the zone',
    seq         bigint         not null comment 'position among those of the zone, from 1 without gaps',
    kind        varchar(20)    character set ascii not null comment 'drop, by upkeep; erase',
    removed_at  datetime(6)    not null comment 'when; never moves backwards within a zone',
    cut_at      datetime(6)    null comment 'of a drop: rows decided before this time went',
    bucket_key  varbinary(255) null comment 'of an erasure: what stands in the place of the key, erased: and the hash that its chain begins with; nothing happens in that bucket any more',
    buckets     bigint         not null comment 'of how many buckets',
    ledger_rows bigint         not null comment 'of a drop: how many rows of the ledger went, or were to go when it began; of an erasure: how many rows of the ledger the bucket had',
    actor       varchar(1000)  character set utf8mb4 null comment 'of an erasure: who did it, as was said',
    login       varchar(400)   character set utf8mb4 null default (user()) comment 'by which name, and from where, the session was logged in that did it',
    note        varchar(1000)  character set utf8mb4 null comment 'of an erasure: why; it does not name the person',
    row_hash    binary(32)     not null comment 'SHA-256 over the hash of the row before it in the zone and all that the row says',
    constraint zone_removal_pk primary key (zone_id, seq),
    constraint zone_removal_kind_ck check (
        (kind = 'drop' and cut_at is not null and bucket_key is null)
        or (kind = 'erase' and cut_at is null and bucket_key is not null)
    )
) engine = innodb comment = 'Removals by owners from the ledger of each zone: runs of upkeep that dropped old rows, and erasures. Append-only.';
