-- zone_engine_check: a check by itself in a plain zone, for a process that does not remember the bucket: decided in one round trip.
--
-- Arguments  as in zone_decide; the transaction is the call's own
-- Result     the decision, and what the process then remembers of the bucket, see zone_decide
-- Locks      the bucket's row, until the transaction ends
-- Errors     those of zone_check
create function zone_engine_check(
    p_zone_id      int,
    p_bucket_key   text,
    p_txn_id       uuid,
    p_cost         bigint,
    p_record       boolean,
    p_named        boolean,
    p_lock_wait_ms int,
    out zone_version   int,
    out seq            bigint,
    out blocked        boolean,
    out reason         text,
    out zone_limit     bigint,
    out remaining      bigint,
    out retry_after_us bigint,
    out created_at     timestamptz,
    out replayed       boolean,
    out total          bigint,
    out level          bigint,
    out strikes        bigint,
    out salt           bytea,
    out row_hash       bytea,
    out is_simple      boolean
)
language plpgsql
security definer
set search_path from current
-- For the reasons that are given in zone_check.
set enable_seqscan = off
set enable_sort = off
set enable_incremental_sort = off
set jit = off
as $$
declare
    d constant record := zone_decide(
        p_zone_id, p_bucket_key, p_txn_id, p_cost, p_record, p_lock_wait_ms, true, false, p_named
    );
begin
    zone_version := d.zone_version;
    seq := d.seq;
    blocked := d.blocked;
    reason := d.reason;
    zone_limit := d.zone_limit;
    remaining := d.remaining;
    retry_after_us := d.retry_after_us;
    created_at := d.created_at;
    replayed := d.replayed;
    total := d.total;
    level := d.level;
    strikes := d.strikes;
    salt := d.salt;
    row_hash := d.row_hash;
    is_simple := d.is_simple;
end
$$;
