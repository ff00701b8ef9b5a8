-- Views of every table: what an auditor may read, and what the program itself reads for lists and history. They read
-- with the rights of their owner. A column that is added to a table is added here.

create or replace view zone_master_view as
select z.id, z.name, z.description, z.algorithm, z.rate, z.window_us, z.burst, z.rate_gcd, z.slots, z.calendar,
    z.time_zone, z.soft_rate, z.reserve, z.mode, z.count_blocked, z.ban_after, z.ban_within_us, z.ban_for_us,
    z.ban_factor, z.ban_max_us, z.ban_from, z.on_outage, z.running_buckets, z.durability, z.blocked_rows,
    z.share, z.refresh_us, z.safe_capacity, z.guaranteed, z.local_us,
    z.backlog, z.max_takes, z.clock, z.beyond_sql,
    z.version, z.created_at, z.updated_at
from zone_master z;
comment on view zone_master_view is 'The zones.';

create or replace view zone_version_view as
select v.zone_id, v.version, v.description, v.algorithm, v.rate, v.window_us, v.burst, v.rate_gcd, v.slots, v.calendar,
    v.time_zone, v.soft_rate, v.reserve, v.mode, v.count_blocked, v.ban_after, v.ban_within_us, v.ban_for_us,
    v.ban_factor, v.ban_max_us, v.ban_from, v.on_outage, v.running_buckets, v.durability, v.blocked_rows,
    v.share, v.refresh_us, v.safe_capacity, v.guaranteed, v.local_us,
    v.backlog, v.max_takes, v.clock,
    v.changed_at, v.changed_by, v.login, v.row_hash
from zone_version v;
comment on view zone_version_view is 'Every version of every zone.';

create or replace view zone_calendar_view as
select c.zone_id, c.version, c.starts_us, c.ends_us, c.offset_us, c.shown_us
from zone_calendar c;
comment on view zone_calendar_view is 'The clocks by which versions count their periods.';

create or replace view zone_bucket_lock_view as
select b.seq, b.last_at, b.spent_total, b.level, b.strikes, b.banned_until, b.ban_strikes, b.carried, b.carried_at,
    b.carried_total, b.carried_seq, b.override_seq, b.zone_id, b.zone_version, b.bans, b.holding, b.bucket_key, b.salt, b.row_hash,
    b.moved_to, b.moved_by, b.shapes, b.sql_at
from zone_bucket_lock b;
comment on view zone_bucket_lock_view is 'The heads of the buckets.';

create or replace view zone_bucket_removed_view as
select r.zone_id, r.removed_at
from zone_bucket_removed r;
comment on view zone_bucket_removed_view is 'The zones in which heads were removed.';

create or replace view zone_upkeep_lock_view as
select u.id, u.finished_at
from zone_upkeep_lock u;
comment on view zone_upkeep_lock_view is 'When upkeep was last done.';

create or replace view zone_hold_view as
select h.zone_id, h.bucket_key, h.seq, h.charged_at, h.amount, h.ends_at, h.member
from zone_hold h;
comment on view zone_hold_view is 'The part of a charge that ends by itself.';

create or replace view zone_queue_view as
select q.zone_id, q.bucket_key, q.waiting, q.away, q.settled_at
from zone_queue q;
comment on view zone_queue_view is 'The load of each queue.';

create or replace view zone_item_view as
select i.zone_id, i.bucket_key, i.seq, i.txn_id, i.cost, i.band, i.offered_at, i.deadline_at, i.place, i.due_at, i.takes,
    i.is_last, i.receipt, i.payload
from zone_item i;
comment on view zone_item_view is 'The items that are in queues.';

create or replace view zone_override_view as
select o.zone_id, o.bucket_key, o.seq, o.rate, o.window_us, o.burst, o.rate_gcd, o.ban_exempt, o.ends_at, t.created_at,
    t.note, t.actor, t.login
from zone_override o
left join zone_txn t on t.zone_id = o.zone_id and t.bucket_key = o.bucket_key and t.seq = o.seq;
comment on view zone_override_view is 'Limits of single buckets, with the time, the note and the author of their rows.';

-- For who reads bucket by bucket and has the rows: no index finds a row by its seq, so beside each override all rows of its
-- bucket are looked at.
create or replace view zone_override_by_bucket_view as
select o.zone_id, o.bucket_key, o.seq, o.rate, o.window_us, o.burst, o.rate_gcd, o.ban_exempt, o.ends_at
from zone_override o;
comment on view zone_override_by_bucket_view is 'Limits of single buckets, without what their rows say.';

create or replace view zone_txn_view as
select t.id, t.seq, t.cost, t.spent, t.spent_total, t.remaining, t.zone_limit, t.retry_after_us, t.delay_us, t.level,
    t.strikes, t.target_at, t.created_at, t.prev_at, t.ends_at, t.txn_id, t.zone_id, t.zone_version, t.checks,
    t.blocked, t.critical, t.band, t.kind, t.reason, t.bucket_key, t.member, t.note, t.actor,
    t.login, t.salt, t.row_hash
from zone_txn t;
comment on view zone_txn_view is 'The ledger.';

create or replace view zone_txn_dropped_view as
select d.zone_id, d.bucket_key, d.seq, d.zone_version, d.spent_total, d.level, d.strikes, d.created_at, d.salt, d.row_hash
from zone_txn_dropped d;
comment on view zone_txn_dropped_view is 'The last row of each bucket whose old rows were removed.';

create or replace view zone_removal_view as
select r.zone_id, r.seq, r.kind, r.removed_at, r.cut_at, r.bucket_key, r.buckets, r.ledger_rows, r.actor, r.login, r.note,
    r.row_hash
from zone_removal r;
comment on view zone_removal_view is 'Removals by owners from the ledger.';

-- One reading for all, since a database of tests has another clock than its server.
create or replace view zone_clock_view as
select pg_catalog.clock_timestamp() as now_at;
comment on view zone_clock_view is 'The clock by which all is decided.';
comment on column zone_clock_view.now_at is 'The time.';

-- A column says what the same column of its table says.
do $do$
declare
    v_comment text;
begin
    for v_comment in
        select format('comment on column %I.%I is %L', v.relname, c.attname, d.description)
        from pg_catalog.pg_class v
        join pg_catalog.pg_class t
            on t.relnamespace = v.relnamespace and t.relname = regexp_replace(v.relname, '(_by_bucket)?_view$', '')
        join pg_catalog.pg_description d on d.objoid = t.oid and d.classoid = 'pg_catalog.pg_class'::regclass
        join pg_catalog.pg_attribute a on a.attrelid = t.oid and a.attnum = d.objsubid
        join pg_catalog.pg_attribute c on c.attrelid = v.oid and c.attname = a.attname
        where v.relnamespace = current_schema()::regnamespace and v.relkind = 'v'
    loop
        execute v_comment;
    end loop;
end
$do$;
