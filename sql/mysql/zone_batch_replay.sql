-- zone_batch_replay: answers checks of a batch with what zone_batch_past holds; not called from outside.
--
-- Locks      nothing
-- Errors     TG002 (31002) the transaction was decided with another cost or about another member
drop procedure if exists zone_batch_replay;
create procedure zone_batch_replay()
sql security definer
begin
    declare v_position int;
    declare v_txn_id   binary(16);
    declare v_cost     bigint;
    declare v_past     bigint;
    select min(d.position)
    into v_position
    from zone_batch_past p
    join zone_decision d on d.position = p.position
    where d.cost <> p.cost;
    if v_position is not null then
        select d.txn_id, d.cost, p.cost
        into v_txn_id, v_cost, v_past
        from zone_batch_past p
        join zone_decision d on d.position = p.position
        where d.position = v_position;
        call zone_error('other cost', hex(v_txn_id), v_past, v_cost);
    end if;
    select min(d.position)
    into v_position
    from zone_batch_past p
    join zone_decision d on d.position = p.position
    where p.other_member;
    if v_position is not null then
        select d.txn_id
        into v_txn_id
        from zone_decision d
        where d.position = v_position;
        call zone_error('other member', hex(v_txn_id), null, null);
    end if;
    update zone_decision d
    join zone_batch_past p on p.position = d.position
    set d.id = p.id,
        d.zone_version = p.zone_version,
        d.seq = p.seq,
        d.blocked = p.blocked,
        d.reason = p.reason,
        d.zone_limit = p.zone_limit,
        d.remaining = p.remaining,
        d.retry_after_us = p.retry_after_us,
        d.delay_us = p.delay_us,
        d.ends_at = p.ends_at,
        d.created_at = p.created_at,
        d.replayed = true;
end;
