-- Views of every table: what an auditor may read, and what the program itself reads for lists and history. They read
-- with the rights of their owner. A column that is added to a table is added here.

create or replace sql security definer view zone_master_view as
select z.id, z.name, z.description, z.algorithm, z.rate, z.window_us, z.burst, z.rate_gcd, z.slots, z.calendar,
    z.time_zone, z.soft_rate, z.reserve, z.mode, z.count_blocked, z.ban_after, z.ban_within_us, z.ban_for_us,
    z.ban_factor, z.ban_max_us, z.ban_from, z.on_outage, z.running_buckets, z.durability, z.blocked_rows,
    z.share, z.refresh_us, z.safe_capacity, z.guaranteed, z.local_us,
    z.backlog, z.max_takes, z.clock, z.beyond_sql,
    z.version, z.created_at, z.updated_at
from zone_master z;

create or replace sql security definer view zone_version_view as
select v.zone_id, v.version, v.description, v.algorithm, v.rate, v.window_us, v.burst, v.rate_gcd, v.slots, v.calendar,
    v.time_zone, v.soft_rate, v.reserve, v.mode, v.count_blocked, v.ban_after, v.ban_within_us, v.ban_for_us,
    v.ban_factor, v.ban_max_us, v.ban_from, v.on_outage, v.running_buckets, v.durability, v.blocked_rows,
    v.share, v.refresh_us, v.safe_capacity, v.guaranteed, v.local_us,
    v.backlog, v.max_takes, v.clock,
    v.changed_at, v.changed_by, v.login, v.row_hash
from zone_version v;

create or replace sql security definer view zone_calendar_view as
select c.zone_id, c.version, c.starts_us, c.ends_us, c.offset_us, c.shown_us
from zone_calendar c;

create or replace sql security definer view zone_bucket_lock_view as
select b.zone_id, b.bucket_key, b.seq, b.last_at, b.spent_total, b.level, b.zone_version, b.strikes, b.banned_until,
    b.bans, b.ban_strikes, b.carried, b.carried_at, b.carried_total, b.carried_seq, b.override_seq, b.holding, b.salt,
    b.row_hash, b.moved_to, b.moved_by, b.shapes, b.sql_at
from zone_bucket_lock b;

create or replace sql security definer view zone_bucket_removed_view as
select r.zone_id, r.removed_at
from zone_bucket_removed r;

-- Through a view that is read in place a locking read locks its table, which here is the owner's to do.
create or replace algorithm = temptable sql security definer view zone_upkeep_lock_view as
select u.id, u.finished_at
from zone_upkeep_lock u;

create or replace sql security definer view zone_hold_view as
select h.zone_id, h.bucket_key, h.seq, h.charged_at, h.amount, h.ends_at, h.member
from zone_hold h;

create or replace sql security definer view zone_queue_view as
select q.zone_id, q.bucket_key, q.waiting, q.away, q.settled_at
from zone_queue q;

create or replace sql security definer view zone_item_view as
select i.zone_id, i.bucket_key, i.seq, i.txn_id, i.cost, i.band, i.offered_at, i.deadline_at, i.place, i.due_at, i.takes,
    i.is_last, i.receipt, i.payload
from zone_item i;

create or replace sql security definer view zone_override_view as
select o.zone_id, o.bucket_key, o.seq, o.rate, o.window_us, o.burst, o.rate_gcd, o.ban_exempt, o.ends_at, t.created_at,
    t.note, t.actor, t.login
from zone_override o
left join zone_txn t force index (zone_txn_bucket_uq)
    on t.zone_id = o.zone_id and t.bucket_key = o.bucket_key and t.seq = o.seq and t.sealed;

-- Without what their rows say, for who reads bucket by bucket and has the rows: no index finds a row by its seq, so beside each
-- override all rows of its bucket are looked at.
create or replace sql security definer view zone_override_by_bucket_view as
select o.zone_id, o.bucket_key, o.seq, o.rate, o.window_us, o.burst, o.rate_gcd, o.ban_exempt, o.ends_at
from zone_override o;

create or replace sql security definer view zone_txn_view as
select t.id, t.txn_id, t.zone_id, t.zone_version, t.bucket_key, t.seq, t.kind, t.checks, t.blocked, t.reason,
    t.critical, t.band, t.cost, t.spent, t.spent_total, t.remaining, t.zone_limit, t.retry_after_us, t.delay_us,
    t.level, t.strikes, t.target_at, t.created_at, t.prev_at, t.ends_at, t.member, t.note, t.actor,
    t.login, t.salt, t.row_hash, t.sealed
from zone_txn t
where t.sealed;

-- The same, for who reads bucket by bucket in order: without statistics the optimizer may hold sorting a whole range for as
-- cheap as its first rows, and an index cannot be named from outside of a view.
create or replace sql security definer view zone_txn_by_bucket_view as
select t.id, t.txn_id, t.zone_id, t.zone_version, t.bucket_key, t.seq, t.kind, t.checks, t.blocked, t.reason,
    t.critical, t.band, t.cost, t.spent, t.spent_total, t.remaining, t.zone_limit, t.retry_after_us, t.delay_us,
    t.level, t.strikes, t.target_at, t.created_at, t.prev_at, t.ends_at, t.member, t.note, t.actor,
    t.login, t.salt, t.row_hash, t.sealed
from zone_txn t force index (zone_txn_bucket_uq)
where t.sealed;

create or replace sql security definer view zone_txn_dropped_view as
select d.zone_id, d.bucket_key, d.seq, d.zone_version, d.spent_total, d.level, d.strikes, d.created_at, d.salt, d.row_hash
from zone_txn_dropped d;

create or replace sql security definer view zone_removal_view as
select r.zone_id, r.seq, r.kind, r.removed_at, r.cut_at, r.bucket_key, r.buckets, r.ledger_rows, r.actor, r.login, r.note,
    r.row_hash
from zone_removal r;

-- The clock by which all is decided. One reading for all, since a database of tests has another clock than its server.
create or replace sql security definer view zone_clock_view as
select utc_timestamp(6) as now_at;
