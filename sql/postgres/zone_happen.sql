-- zone_happen: appends the row of the end of a charge, and moves the bucket's head. Not called from outside.
--
-- Arguments  p_zone       the zone's version in force
--            p_head       the bucket before it
--            p_next       and after it; its seq, time and version are set here
--            p_now        the time
--            p_txn_id, p_kind, p_cost, p_spent, p_target_at  columns of the row
--            p_member     of a settlement the shape of the request, of which it teaches the cost
-- Result     one zone_recorded; what remains is what a peek finds afterwards
-- Locks      the bucket's row, which the caller holds
-- Errors     TG005 the ledger lacks rows of the window
create function zone_happen(
    p_zone      zone_version,
    p_head      zone_bucket_lock,
    p_next      zone_bucket_lock,
    p_now       timestamptz,
    p_txn_id    uuid,
    p_kind      text,
    p_cost      bigint,
    p_spent     bigint,
    p_target_at timestamptz,
    p_member    text
)
returns zone_recorded
language plpgsql
as $$
declare
    v_head zone_bucket_lock := p_next;
    v_peek zone_verdict;
    v_id   bigint;
begin
    v_head.seq := p_head.seq + 1;
    v_head.last_at := p_now;
    v_head.zone_version := p_zone.version;
    v_peek := zone_decide(p_zone, v_head, p_now, 0);
    v_head.row_hash := sha256(p_head.row_hash || zone_txn_bytes(
        p_txn_id, v_head.seq, v_head.zone_version, 1, false, false, p_cost, p_spent,
        v_head.spent_total, v_peek.remaining, v_peek.zone_limit, null, null, v_head.level, v_head.strikes, p_target_at,
        p_now, null, p_kind, 'recorded', zone_txn_tail(p_head.salt, p_member)
    ));
    insert into zone_txn (
        txn_id, zone_id, zone_version, bucket_key, seq, kind, blocked, reason, cost, spent, spent_total, remaining,
        zone_limit, level, strikes, target_at, created_at, prev_at, member, salt, row_hash
    )
    values (
        p_txn_id, v_head.zone_id, v_head.zone_version, v_head.bucket_key, v_head.seq, p_kind, false,
        'recorded', p_cost, p_spent, v_head.spent_total, v_peek.remaining, v_peek.zone_limit, v_head.level,
        v_head.strikes, p_target_at, p_now, p_head.last_at, p_member,
        case when v_head.seq = 1 then v_head.salt end, v_head.row_hash
    )
    returning zone_txn.id into v_id;
    perform zone_head_set(v_head);
    if p_kind = 'settle' and p_member is not null then
        update zone_bucket_lock b
        set shapes = zone_learn(b.shapes, p_member, p_cost, zone_us(p_now))
        where b.zone_id = v_head.zone_id and b.bucket_key = v_head.bucket_key;
    end if;
    return (
        v_id, p_txn_id, v_head.zone_id, v_head.zone_version, v_head.bucket_key, v_head.seq, p_kind, p_cost, p_spent,
        v_peek.remaining, p_now, false
    )::zone_recorded;
end
$$;
