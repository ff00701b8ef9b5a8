-- zone_answer: a verdict as callers are told, without a row in the ledger. Not called from outside.
--
-- Arguments  p_zone     the zone's version in force
--            p_verdict  the verdict
--            p_txn_id   the transaction
--            p_cost     what was asked
-- Result     the decision
-- Locks      nothing
create function zone_answer(p_zone zone_version, p_verdict zone_verdict, p_txn_id uuid, p_cost bigint)
returns zone_decision
language plpgsql
as $$
begin
    return (
        null, p_txn_id, p_zone.zone_id, p_zone.version, (p_verdict.head).bucket_key, null, p_verdict.blocked,
        p_verdict.reason, p_cost, p_verdict.zone_limit, p_verdict.remaining, p_verdict.retry_after_us,
        p_verdict.delay_us, p_verdict.ends_at, p_verdict.decided_at, false
    )::zone_decision;
end
$$;
