-- zone_past: what was decided of a transaction in a bucket before. Not called from outside.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket
--            p_txn_id      the transaction
--            p_cost, p_member  what is asked now
-- Result     the decision, as one that is told again; null when there is none
-- Locks      nothing
-- Errors     TG002 the transaction was decided with another cost or about another member, or took units for local decisions
create function zone_past(p_zone_id int, p_bucket_key text, p_txn_id uuid, p_cost bigint, p_member text)
returns zone_decision
language plpgsql
as $$
declare
    v_past  zone_decision;
    v_other boolean;
    v_taken boolean;
begin
    -- From there to there: in this order there is one index only to read it by. A charge that was ended and a check that brought a
    -- ban about have other rows of the same transaction.
    select t.id, t.txn_id, t.zone_id, t.zone_version, t.bucket_key, t.seq, t.blocked, t.reason, t.cost,
        t.zone_limit, t.remaining, t.retry_after_us, t.delay_us, t.ends_at, t.created_at, true,
        t.kind <> 'unchecked' and t.member is distinct from p_member, t.kind = 'local'
    into v_past.id, v_past.txn_id, v_past.zone_id, v_past.zone_version, v_past.bucket_key, v_past.seq, v_past.blocked,
        v_past.reason, v_past.cost, v_past.zone_limit, v_past.remaining, v_past.retry_after_us, v_past.delay_us,
        v_past.ends_at, v_past.created_at, v_past.replayed, v_other, v_taken
    from zone_txn t
    where t.bucket_key = p_bucket_key -- finds the shard, where there are several
        and (t.zone_id, t.bucket_key, t.txn_id) >= (p_zone_id, p_bucket_key, p_txn_id)
        and (t.zone_id, t.bucket_key, t.txn_id) <= (p_zone_id, p_bucket_key, p_txn_id)
        and t.kind in ('check', 'reserve', 'coalesced', 'unchecked', 'local')
    order by t.zone_id, t.bucket_key, t.txn_id
    limit 1;
    if v_taken then
        perform zone_error('taken');
    end if;
    if v_past.cost <> p_cost then
        perform zone_error('other cost', p_txn_id::text, v_past.cost::text, p_cost::text);
    end if;
    -- Of what passed unchecked no member is known.
    if v_other then
        perform zone_error('other member', p_txn_id::text);
    end if;
    return v_past;
end
$$;
