-- zone_batch_replay: answers checks of a batch with what zone_batch_past holds; not called from outside.
--
-- Locks      nothing
-- Errors     TG002 (31002) the transaction was decided with another cost
drop procedure if exists zone_batch_replay;
create procedure zone_batch_replay()
sql security definer
begin
    declare v_position int;
    declare v_txn_id   binary(16);
    declare v_cost     bigint;
    declare v_past     bigint;
    declare v_message  varchar(128); -- the longest that a signal can carry
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
        set v_message = lower(concat_ws('-', hex(substring(v_txn_id, 1, 4)), hex(substring(v_txn_id, 5, 2)),
            hex(substring(v_txn_id, 7, 2)), hex(substring(v_txn_id, 9, 2)), hex(substring(v_txn_id, 11))));
        set v_message = concat(
            'transaction ', v_message, ' was decided with cost ', v_past, ', not ', v_cost, '; use a new id'
        );
        signal sqlstate 'TG002' set mysql_errno = 31002, message_text = v_message;
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
        d.created_at = p.created_at,
        d.replayed = true;
end;
