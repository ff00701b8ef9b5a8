-- zone_record: appends what zone_decide said of a check, and moves the bucket's head. Not called from outside.
--
-- Its row; after it one for a ban that it brings about; and what of its charge ends by itself. Where members or slots
-- are counted, those of the bucket that have ended go when one comes.
--
-- Arguments  p_zone      the zone's version in force
--            p_verdict   the verdict
--            p_prev_at   when the bucket's last row was decided
--            p_txn_id    the transaction
--            p_cost, p_critical, p_member  what was asked
--            p_kind      check, reserve or coalesced
--            p_checks    how many checks the row stands for
-- Result     the decision
-- Locks      the bucket's row, which the caller holds
-- Errors     TG008 there is no such algorithm
create function zone_record(
    p_zone     zone_version,
    p_verdict  zone_verdict,
    p_prev_at  timestamptz,
    p_txn_id   uuid,
    p_cost     bigint,
    p_critical boolean,
    p_member   text,
    p_kind     text,
    p_checks   int default 1
)
returns zone_decision
language plpgsql
as $$
declare
    v_head     zone_bucket_lock := p_verdict.head;
    v_seq      bigint := v_head.seq;
    v_decision zone_decision;
begin
    if p_verdict.banned_until is not null then
        v_seq := v_seq - 1;
    end if;
    v_decision := zone_answer(p_zone, p_verdict, p_txn_id, p_cost);
    v_decision.seq := v_seq;
    v_head.row_hash := sha256(v_head.row_hash || zone_txn_bytes(
        p_txn_id, v_seq, v_head.zone_version, p_checks, p_verdict.blocked, p_critical, p_cost,
        p_verdict.spent, v_head.spent_total, p_verdict.remaining, p_verdict.zone_limit, p_verdict.retry_after_us,
        p_verdict.delay_us, v_head.level, v_head.strikes, null, p_verdict.decided_at, p_verdict.ends_at, p_kind,
        p_verdict.reason, zone_txn_tail(v_head.salt, p_member)
    ));
    insert into zone_txn (
        txn_id, zone_id, zone_version, bucket_key, seq, kind, checks, blocked, reason, critical, cost, spent,
        spent_total, remaining, zone_limit, retry_after_us, delay_us, level, strikes, created_at, prev_at, ends_at,
        member, salt, row_hash
    )
    values (
        p_txn_id, v_head.zone_id, v_head.zone_version, v_head.bucket_key, v_seq, p_kind, p_checks, p_verdict.blocked,
        p_verdict.reason, p_critical, p_cost, p_verdict.spent, v_head.spent_total, p_verdict.remaining,
        p_verdict.zone_limit, p_verdict.retry_after_us, p_verdict.delay_us, v_head.level, v_head.strikes,
        p_verdict.decided_at, p_prev_at, p_verdict.ends_at, p_member,
        case when v_seq = 1 then v_head.salt end, v_head.row_hash
    )
    returning zone_txn.id into v_decision.id;
    if p_verdict.banned_until is not null then
        v_head.row_hash := sha256(v_head.row_hash || zone_txn_bytes(
            p_txn_id, v_head.seq, v_head.zone_version, 1, false, false, 0, 0, v_head.spent_total, 0,
            p_verdict.zone_limit, null, null, v_head.level, v_head.strikes, null, p_verdict.decided_at,
            p_verdict.banned_until, 'ban', 'recorded'
        ));
        insert into zone_txn (
            txn_id, zone_id, zone_version, bucket_key, seq, kind, blocked, reason, cost, spent, spent_total, remaining,
            zone_limit, level, strikes, created_at, prev_at, ends_at, row_hash
        )
        values (
            p_txn_id, v_head.zone_id, v_head.zone_version, v_head.bucket_key, v_head.seq, 'ban', false, 'recorded', 0,
            0, v_head.spent_total, 0, p_verdict.zone_limit, v_head.level, v_head.strikes, p_verdict.decided_at,
            p_verdict.decided_at, p_verdict.banned_until, v_head.row_hash
        );
    end if;
    if p_verdict.ends_at is not null then
        if zone_family(p_zone.algorithm) = 'held' then
            delete from zone_hold h
            where h.zone_id = v_head.zone_id and h.bucket_key = v_head.bucket_key and h.ends_at <= p_verdict.decided_at;
        end if;
        insert into zone_hold (zone_id, bucket_key, seq, charged_at, amount, ends_at, member)
        values (
            v_head.zone_id, v_head.bucket_key, v_seq, p_verdict.decided_at, p_verdict.spent, p_verdict.ends_at, p_member
        );
    end if;
    perform zone_head_set(v_head);
    return v_decision;
end
$$;
