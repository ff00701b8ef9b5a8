-- zone_check_held: decides and records one check of a bucket that is locked, whatever its zone is. Not called from
-- outside.
--
-- Arguments  p_zone_id, p_version  the zone and its version in force
--            p_head      the bucket
--            p_now       the time, by the clock that was read under the lock
--            p_txn_id    the transaction
--            p_recorded  leave a row
--            p_cost, p_critical, p_member, p_ttl_us, p_checks  as in zone_check
-- Result     one zone_decision
-- Locks      the bucket's row, which the caller holds
-- Errors     TG003 the zone has no use for a value, or no check was blocked that p_checks could follow; TG004 the bucket's total is full;
--            TG005 the ledger lacks rows of the window
create function zone_check_held(
    p_zone_id  int,
    p_version  int,
    p_head     zone_bucket_lock,
    p_now      timestamptz,
    p_txn_id   uuid,
    p_cost     bigint,
    p_recorded boolean,
    p_critical boolean,
    p_member   text,
    p_ttl_us   bigint,
    p_checks   int
)
returns zone_decision
language plpgsql
as $$
declare
    v_zone    zone_version := zone_version_of(p_zone_id, p_version);
    v_verdict zone_verdict;
begin
    if p_checks is null then
        v_verdict := zone_decide(v_zone, p_head, p_now, p_cost, p_critical, p_member, p_ttl_us);
        if not p_recorded then
            return zone_answer(v_zone, v_verdict, p_txn_id, p_cost);
        end if;
        return zone_record(
            v_zone, v_verdict, p_head.last_at, p_txn_id, p_cost, p_critical, p_member,
            case when p_ttl_us is null then 'check' else 'reserve' end
        );
    end if;
    perform zone_flood_validate(p_zone_id, p_head.bucket_key, p_checks, p_now);
    -- Nothing is decided: the bucket is brought to the time as by a peek.
    v_verdict := zone_decide(v_zone, p_head, p_now, 0);
    v_verdict.blocked := true;
    v_verdict.reason := 'over_limit';
    v_verdict.delay_us := null;
    if (v_verdict.head).banned_until > v_verdict.decided_at then
        v_verdict.reason := 'banned';
    end if;
    return zone_record(
        v_zone, v_verdict, p_head.last_at, p_txn_id, p_cost, p_critical, p_member, 'coalesced', p_checks
    );
end
$$;
