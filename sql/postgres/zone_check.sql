-- zone_check: decides one check of a plain zone and records it.
--
-- Joins the caller's transaction: the decision is committed, or taken back, with it.
--
-- Arguments  p_zone_id       the zone; or p_zone, its name
--            p_bucket_key    the bucket, 1 to 255 bytes without control characters
--            p_txn_id        the transaction; null makes a version 7 UUID
--            p_cost          what to spend, 0 to 2^40 units; 0 is a peek, which leaves no row
--            p_record        leave a row even for a peek
--            p_lock_wait_ms  the longest wait for a lock, up to the end of the transaction; null leaves
--                            the session's lock_timeout as it is
--            p_own           the transaction is this call's own: where the zone is relaxed, its commit need
--                            not wait for the disk
-- Result     one zone_decision
-- Locks      the bucket's row, until the transaction ends
-- Errors     TG001 there is no such zone; TG002 the transaction was decided with another cost or about a member; TG003 a value is out
--            of range; TG004 the bucket's total is full; TG005 the ledger lacks rows of the window; TG011 another database has the
--            bucket; TG012 the zone is not plain; 55P03 the lock was not had in time
create function zone_check(
    p_zone_id      int,
    p_bucket_key   text,
    p_txn_id       uuid    default null,
    p_cost         bigint  default 1,
    p_record       boolean default false,
    p_lock_wait_ms int     default null,
    p_own          boolean default false
)
returns zone_decision
language plpgsql
security definer
set search_path from current
-- Each read of the ledger wants the first row of an index range. Where the statistics know no row of the bucket
-- yet, the planner holds reading the whole range and sorting it for as cheap; where they know few rows at all, reading all.
set enable_seqscan = off
set enable_sort = off
set enable_incremental_sort = off
-- Up to PostgreSQL 17 what is switched off counts as dear, and what is dear is compiled.
set jit = off
as $$
declare
    d constant record := zone_decide(
        p_zone_id, p_bucket_key, p_txn_id, p_cost, p_record, p_lock_wait_ms, p_own, true, true
    );
begin
    return (
        d.id, d.txn_id, p_zone_id, d.zone_version, p_bucket_key, d.seq, d.blocked, d.reason, p_cost, d.zone_limit, d.remaining,
        d.retry_after_us, d.created_at, d.replayed
    )::zone_decision;
end
$$;

-- By the zone's name.
create function zone_check(
    p_zone         text,
    p_bucket_key   text,
    p_txn_id       uuid    default null,
    p_cost         bigint  default 1,
    p_record       boolean default false,
    p_lock_wait_ms int     default null,
    p_own          boolean default false
)
returns zone_decision
language sql
security definer
set search_path from current
as $$
    select zone_check(zone_number(p_zone), p_bucket_key, p_txn_id, p_cost, p_record, p_lock_wait_ms, p_own)
$$;
