-- zone_engine_items_set: puts items of a queue where the rows lead to that a process has appended.
--
-- The items here are looked at by tallygate audit verify, which derives them from the rows.
--
-- Arguments  p_zone_id, p_bucket_key  the queue
--            p_waiting, p_away        how much is in it then: units that wait, and units that are away
--            p_settled_us             by when items have become something else without a row, in microseconds since 1970; null
--                                     where a row comes with it
--            p_gone                   the rows of the offers of items that have gone: [[row], …]
--            p_items                  each item that is new or has changed: [[row, transaction in hex, and what else
--                                     zone_engine_items tells of it but the payload], …]
--            p_payload                what is given with the only new item; null for nothing
-- Result     true
-- Locks      the bucket's row, until the transaction ends
-- Errors     31003 there is no such bucket; 31006 no transaction is open
drop procedure if exists zone_engine_items_set;
create procedure zone_engine_items_set(
    in p_zone_id int, in p_bucket_key varbinary(4000), in p_waiting bigint, in p_away bigint, in p_settled_us bigint,
    in p_gone json, in p_items json, in p_payload longblob
)
sql security definer
begin
    declare v_epoch        datetime default timestamp'1970-01-01 00:00:00';
    declare v_key          varbinary(255) default p_bucket_key;
    declare v_settled_at   datetime(6) default date_add(v_epoch, interval p_settled_us microsecond);
    declare v_seq          bigint;
    declare v_safe_updates boolean default @@session.sql_safe_updates;
    declare exit handler for sqlexception, 1265
    begin
        set sql_safe_updates = v_safe_updates;
        resignal;
    end;
    call zone_transaction_require();
    set sql_safe_updates = false;
    select b.seq
    into v_seq
    from zone_bucket_lock b
    where b.zone_id = p_zone_id and b.bucket_key = v_key
    for update;
    if v_seq is null then
        call zone_error('append', p_zone_id, null, null);
    end if;
    delete i
    from json_table(p_gone, '$[*]' columns (seq bigint path '$[0]')) j
    straight_join zone_item i force index (primary)
        on i.zone_id = p_zone_id and i.bucket_key = v_key and i.seq = j.seq;
    insert into zone_item (
        zone_id, bucket_key, seq, txn_id, cost, band, offered_at, deadline_at, place, due_at, takes, is_last, receipt, payload
    )
    select n.zone_id, n.bucket_key, n.seq, n.txn_id, n.cost, n.band, n.offered_at, n.deadline_at, n.place, n.due_at, n.takes,
        n.is_last, n.receipt, n.payload
    from (
        select p_zone_id as zone_id, v_key as bucket_key, j.seq, unhex(j.txn) as txn_id, j.cost, j.band,
            date_add(v_epoch, interval j.offered_us microsecond) as offered_at,
            date_add(v_epoch, interval j.deadline_us microsecond) as deadline_at, j.place,
            date_add(v_epoch, interval j.due_us microsecond) as due_at, j.takes, j.is_last, j.receipt, p_payload as payload
        from json_table(p_items, '$[*]' columns (
            seq         bigint path '$[0]',
            txn         varchar(32) character set ascii path '$[1]',
            cost        bigint path '$[2]',
            band        int path '$[3]',
            offered_us  bigint path '$[4]',
            deadline_us bigint path '$[5]',
            place       varchar(20) character set ascii path '$[6]',
            due_us      bigint path '$[7]',
            takes       int path '$[8]',
            is_last     boolean path '$[9]',
            receipt     bigint path '$[10]'
        )) j
    ) n
    on duplicate key update place = n.place,
        due_at = n.due_at,
        takes = n.takes,
        is_last = n.is_last,
        receipt = n.receipt;
    insert into zone_queue (zone_id, bucket_key, waiting, away, settled_at)
    values (p_zone_id, v_key, p_waiting, p_away, v_settled_at)
    on duplicate key update waiting = p_waiting,
        away = p_away,
        settled_at = greatest(coalesce(zone_queue.settled_at, v_settled_at), coalesce(v_settled_at, zone_queue.settled_at));
    set sql_safe_updates = v_safe_updates;
    select true as whole;
end;
