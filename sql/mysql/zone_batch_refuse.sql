-- zone_batch_refuse: says why a batch cannot be decided; not called from outside.
--
-- Arguments  p_position  the first check that cannot be decided or recorded; null when a zone is missing
-- Locks      nothing
-- Errors     TG001 (31001) there is no such zone; TG004 (31004) the bucket's total is full; TG005 (31005) the
--            ledger lacks rows of the window
drop procedure if exists zone_batch_refuse;
create procedure zone_batch_refuse(in p_position int)
sql security definer
begin
    declare v_position    int;
    declare v_zone_id     int;
    declare v_spent       bigint;
    declare v_spent_total bigint unsigned;
    if p_position is null then
        select min(c.position)
        into v_position
        from zone_batch_check c
        join zone_batch_head h on h.bucket = c.bucket
        left join zone_batch_bucket b on b.bucket = c.bucket
        where b.bucket is null;
        select c.zone_id
        into v_zone_id
        from zone_batch_check c
        where c.position = v_position;
        call zone_error('no zone', v_zone_id, null, null);
    end if;
    select d.zone_id, d.spent, d.spent_total
    into v_zone_id, v_spent, v_spent_total
    from zone_decision d
    where d.position = p_position;
    if v_spent_total > 9223372036854775807 then
        call zone_error('total', v_spent_total - v_spent, v_spent, null);
    end if;
    call zone_error('ledger', v_zone_id, null, null);
end;
