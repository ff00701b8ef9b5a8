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
    declare v_message     varchar(128); -- the longest that a signal can carry
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
        set v_message = concat('there is no zone ', coalesce(v_zone_id, 'null'), '; list them with: tallygate zone list');
        signal sqlstate 'TG001' set mysql_errno = 31001, message_text = v_message;
    end if;
    select d.zone_id, d.spent, d.spent_total
    into v_zone_id, v_spent, v_spent_total
    from zone_decision d
    where d.position = p_position;
    if v_spent_total > 9223372036854775807 then
        set v_message = concat(
            'the bucket has spent ', v_spent_total - v_spent, ' in all and cannot count ', v_spent, ' more'
        );
        signal sqlstate 'TG004' set mysql_errno = 31004, message_text = v_message;
    end if;
    set v_message = concat(
        'the ledger of a bucket in zone ', v_zone_id, ' lacks rows of its window; it was changed from outside'
    );
    signal sqlstate 'TG005' set mysql_errno = 31005, message_text = v_message;
end;
