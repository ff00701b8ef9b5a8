-- zone_refund: gives a charge back, once.
--
-- Joins the caller's transaction. Never refused for want of room. The same again is told, and nothing happens.
--
-- Arguments  p_zone_id       the zone; or p_zone, its name
--            p_bucket_key    the bucket
--            p_txn_id        the transaction that made the charge
--            p_lock_wait_ms  as in zone_check
-- Result     the row: its cost is what was given back, remaining what a peek finds then; replayed where it was there before
-- Locks      the bucket's row, until the transaction ends
-- Errors     TG001 there is no such zone; TG002 there is nothing to give back, or not so, or it was ended otherwise;
--            TG003 the transaction was not decided in this bucket; TG005 the ledger lacks rows of the window; TG012 the zone is not
--            plain; 55P03 the lock was not had in time
create function zone_refund(
    p_zone_id      int,
    p_bucket_key   text,
    p_txn_id       uuid,
    p_lock_wait_ms int default null,
    out id           bigint,
    out txn_id       uuid,
    out zone_id      int,
    out zone_version int,
    out bucket_key   text,
    out seq          bigint,
    out cost         bigint,
    out remaining    bigint,
    out created_at   timestamptz,
    out replayed     boolean
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
    v_charge record;
    v_kind   text;
begin
    -- 1. Validate.
    if p_txn_id is null or p_txn_id = '00000000-0000-0000-0000-000000000000' then
        perform zone_error('no txn');
    end if;
    txn_id := p_txn_id;
    zone_id := p_zone_id;
    bucket_key := p_bucket_key;

    -- 2. Lock the bucket. 3. Was the charge ended before? Read as in zone_decide.
    perform zone_bucket_take(p_zone_id, p_bucket_key, p_lock_wait_ms);
    select t.id, t.zone_version, t.seq, t.kind, t.cost, t.remaining, t.created_at
    into id, zone_version, seq, v_kind, cost, remaining, created_at
    from zone_txn t
    where hashtextextended(t.bucket_key, uuid_hash_extended(t.txn_id, t.zone_id))
            = hashtextextended(p_bucket_key, uuid_hash_extended(p_txn_id, p_zone_id))
        and t.bucket_key = p_bucket_key and t.txn_id is not distinct from p_txn_id and t.zone_id is not distinct from p_zone_id
        and t.kind in ('refund', 'settle', 'cancel', 'release')
    limit 1;
    replayed := found;
    if v_kind <> 'refund' then
        perform zone_error('other end', p_txn_id::text, v_kind, cost::text, 'refund', cost::text);
    end if;
    if replayed then
        return;
    end if;

    -- 4. The charge.
    select t.seq, t.spent, t.created_at,
        case
            when t.kind = 'local' then 'taken'
            when t.blocked then 'charge blocked'
            when t.spent = 0 then 'charge of nothing'
            when t.kind = 'reserve' then 'charge reserved'
            when t.ends_at is not null then 'charge of slot'
        end as fault
    into v_charge
    from zone_txn t
    where hashtextextended(t.bucket_key, uuid_hash_extended(t.txn_id, t.zone_id))
            = hashtextextended(p_bucket_key, uuid_hash_extended(p_txn_id, p_zone_id))
        and t.bucket_key = p_bucket_key and t.txn_id is not distinct from p_txn_id and t.zone_id is not distinct from p_zone_id
        and t.kind in ('check', 'reserve', 'unchecked', 'local')
    limit 1;
    if not found then
        perform zone_error('no charge', p_txn_id::text);
    end if;
    if v_charge.fault is not null then
        perform zone_error(v_charge.fault);
    end if;

    -- 5. Give it back.
    select d.id, d.zone_version, d.seq, v_charge.spent, d.remaining, d.created_at
    into id, zone_version, seq, cost, remaining, created_at
    from zone_decide(
        p_zone_id, p_bucket_key, p_txn_id, 0, true, null, false, true, false, v_charge.spent, v_charge.seq, v_charge.created_at
    ) d;
end
$$;

-- By the zone's name.
create function zone_refund(
    p_zone         text,
    p_bucket_key   text,
    p_txn_id       uuid,
    p_lock_wait_ms int default null,
    out id           bigint,
    out txn_id       uuid,
    out zone_id      int,
    out zone_version int,
    out bucket_key   text,
    out seq          bigint,
    out cost         bigint,
    out remaining    bigint,
    out created_at   timestamptz,
    out replayed     boolean
)
language sql
security definer
set search_path from current
as $$
    select r.id, r.txn_id, r.zone_id, r.zone_version, r.bucket_key, r.seq, r.cost, r.remaining, r.created_at, r.replayed
    from zone_refund(zone_number(p_zone), p_bucket_key, p_txn_id, p_lock_wait_ms) r
$$;
