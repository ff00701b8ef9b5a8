-- zone_undo: ends a charge, once: gives it back, or settles a reservation.
--
-- Joins the caller's transaction. Never refused for want of room. The same again is told, and nothing happens.
--
-- Arguments  p_zone_id       the zone; or p_zone, its name
--            p_bucket_key    the bucket
--            p_txn_id        the transaction that made the charge
--            p_kind          refund, of an ordinary check; settle or cancel, of a reservation; release, of a slot
--            p_cost          settle: what the reservation comes to, 0 to 2^40 units; else null
--            p_lock_wait_ms  as in zone_check
-- Result     one zone_recorded
-- Locks      the bucket's row, until the transaction ends
-- Errors     TG001 there is no such zone; TG002 there is nothing to end, or not so, or it was ended otherwise;
--            TG003 a value is out of range, or the transaction was not decided in this bucket; TG004 the bucket's
--            total is full; TG005 the ledger lacks rows of the window; 55P03 the lock was not had in time
create function zone_undo(
    p_zone_id      int,
    p_bucket_key   text,
    p_txn_id       uuid,
    p_kind         text,
    p_cost         bigint default null,
    p_lock_wait_ms int    default null
)
returns zone_recorded
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
    v_now     timestamptz;
    v_zone    zone_version;
    v_head    zone_bucket_lock;
    v_brought zone_brought;
    v_next    zone_bucket_lock;
    v_past    zone_recorded;
    v_charge  record;
    -- is it a slot; has it ended by itself; what is given back, and what is charged beyond it
    v_slot    boolean;
    v_ended   boolean;
    v_back    bigint;
    v_extra   bigint := 0;
begin
    -- 1. Validate.
    if p_kind is null or p_kind not in ('refund', 'settle', 'cancel', 'release') then
        perform zone_error('kind', p_kind, 'refund, settle, cancel or release');
    end if;
    if (p_kind = 'settle') <> (p_cost is not null) or p_cost not between 0 and 1099511627776 then
        perform zone_error('cost', p_cost::text);
    end if;
    if p_txn_id is null or p_txn_id = '00000000-0000-0000-0000-000000000000' then
        perform zone_error('no txn');
    end if;

    -- 2. Lock the bucket. 3. The clock, after the lock.
    v_head := zone_bucket_take(p_zone_id, p_bucket_key, p_lock_wait_ms);
    v_now := greatest(pg_catalog.clock_timestamp(), v_head.last_at);

    -- 4. Was it ended before?
    v_zone := zone_version_now(p_zone_id);
    v_past := zone_recorded_past(p_zone_id, p_bucket_key, p_txn_id, array['refund', 'settle', 'cancel', 'release']);
    if v_past.id is not null then
        if v_past.kind <> p_kind or v_past.cost <> p_cost then
            perform zone_error(
                'other end', p_txn_id::text, v_past.kind, v_past.cost::text, p_kind, coalesce(p_cost, v_past.cost)::text
            );
        end if;
        return v_past;
    end if;

    -- 5. What is the charge, and what is left of it?
    select t.seq, t.kind, t.blocked, t.spent, t.member, t.ends_at, t.created_at
    into v_charge
    from zone_txn t
    where t.bucket_key = p_bucket_key -- finds the shard, where there are several
        and (t.zone_id, t.bucket_key, t.txn_id) >= (p_zone_id, p_bucket_key, p_txn_id)
        and (t.zone_id, t.bucket_key, t.txn_id) <= (p_zone_id, p_bucket_key, p_txn_id)
        and t.kind in ('check', 'reserve', 'unchecked', 'local')
    order by t.zone_id, t.bucket_key, t.txn_id
    limit 1;
    if not found then
        perform zone_error('no charge', p_txn_id::text);
    end if;
    v_slot := v_charge.ends_at is not null and v_charge.kind <> 'reserve' and v_charge.member is null;
    v_ended := coalesce(v_charge.ends_at <= v_now, false);
    if v_charge.kind = 'local' then
        perform zone_error('taken');
    elsif v_charge.blocked then
        perform zone_error('charge blocked');
    elsif v_charge.spent = 0 then
        perform zone_error('charge of nothing');
    elsif p_kind = 'refund' and v_charge.kind = 'reserve' then
        perform zone_error('charge reserved');
    elsif p_kind = 'refund' and v_slot then
        perform zone_error('charge of slot');
    elsif p_kind in ('settle', 'cancel') and v_charge.kind <> 'reserve' then
        perform zone_error('charge not reserved');
    elsif p_kind = 'release' and not v_slot then
        perform zone_error('charge of no slot');
    elsif p_kind <> 'settle' and v_ended then
        perform zone_error('charge over');
    end if;
    if p_kind = 'settle' then
        -- A reservation that ran out was given back by itself.
        v_back := case when v_ended then 0 else greatest(v_charge.spent - p_cost, 0) end;
        v_extra := case when v_ended then p_cost else greatest(p_cost - v_charge.spent, 0) end;
    else
        v_back := v_charge.spent;
    end if;

    -- 6. Bring the bucket to now, and give back or take.
    v_brought := zone_bring(v_zone, v_head, v_now);
    v_next := v_brought.head;
    if zone_family(v_zone.algorithm) = 'level' then
        -- Nothing comes back of what a change of policy put something else in place of.
        v_next.level := zone_level_give(
            v_brought.zone, v_next.level, case when v_charge.seq <= v_next.carried_seq then 0 else v_back end, v_extra
        );
    end if;
    if v_next.spent_total > 9223372036854775807 - v_extra then
        perform zone_error('total', v_next.spent_total::text, v_extra::text);
    end if;
    v_next.spent_total := v_next.spent_total + v_extra;
    if not v_ended then
        insert into zone_hold as h (zone_id, bucket_key, seq, charged_at, amount, ends_at)
        values (p_zone_id, p_bucket_key, v_charge.seq, v_charge.created_at, v_back, v_now)
        on conflict (zone_id, bucket_key, seq) do update
        set charged_at = excluded.charged_at,
            amount = excluded.amount,
            ends_at = excluded.ends_at;
        v_next.holding := true;
    end if;
    return zone_happen(
        v_zone, v_head, v_next, v_now, p_txn_id, p_kind, coalesce(p_cost, v_back), v_extra, v_charge.created_at,
        case when p_kind = 'settle' then v_charge.member end
    );
end
$$;

-- By the zone's name.
create function zone_undo(
    p_zone         text,
    p_bucket_key   text,
    p_txn_id       uuid,
    p_kind         text,
    p_cost         bigint default null,
    p_lock_wait_ms int    default null
)
returns zone_recorded
language sql
security definer
set search_path from current
as $$
    select zone_undo(zone_number(p_zone), p_bucket_key, p_txn_id, p_kind, p_cost, p_lock_wait_ms)
$$;
