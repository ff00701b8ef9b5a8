-- zone_batch_each: decides checks of a batch one after the other into the temporary table zone_decision; not called
-- from outside.
--
-- Those of the buckets in zone_batch_special, whose locks are held, in the order of the batch.
--
-- Arguments  p_joined  the transaction is the caller's and may be of any isolation level
-- Locks      nothing more, but see zone_answer
-- Errors     those of zone_answer
drop procedure if exists zone_batch_each;
create procedure zone_batch_each(in p_joined boolean)
sql security definer
begin
    declare v_done           boolean default false;
    declare v_position       int;
    declare v_zone_id        int;
    declare v_key            varbinary(255);
    declare v_bucket_key     varchar(4000) character set utf8mb4;
    declare v_txn_id         binary(16);
    declare v_cost           bigint;
    declare v_recorded       boolean;
    declare v_critical       boolean;
    declare v_member         varbinary(255);
    declare v_ttl_us         bigint;
    declare v_id             bigint;
    declare v_zone_version   int;
    declare v_seq            bigint;
    declare v_blocked        boolean;
    declare v_reason         varchar(20) character set ascii;
    declare v_zone_limit     bigint;
    declare v_remaining      bigint;
    declare v_retry_after_us bigint;
    declare v_delay_us       bigint;
    declare v_ends_at        datetime(6);
    declare v_created_at     datetime(6);
    declare v_replayed       boolean;
    declare c_check cursor for
        select c.position, c.zone_id, c.bucket_key, c.txn_id, c.cost, c.recorded, c.critical, c.member,
            c.ttl_us
        from zone_batch_check c
        join zone_batch_special s on s.bucket = c.bucket
        order by c.position;
    declare continue handler for not found set v_done = true;
    open c_check;
    checks: loop
        set v_done = false;
        fetch c_check into v_position, v_zone_id, v_key, v_txn_id, v_cost, v_recorded, v_critical, v_member,
            v_ttl_us;
        if v_done then
            leave checks;
        end if;
        set v_bucket_key = convert(v_key using utf8mb4);
        call zone_answer(
            v_zone_id, v_bucket_key, v_txn_id, v_cost, v_recorded, null, v_critical,
            convert(v_member using utf8mb4), v_ttl_us, p_joined, v_id, v_zone_version, v_seq, v_blocked, v_reason,
            v_zone_limit, v_remaining, v_retry_after_us, v_delay_us, v_ends_at, v_created_at, v_replayed
        );
        insert into zone_decision (
            position, id, txn_id, zone_id, zone_version, bucket_key, seq, blocked, reason, cost, zone_limit, remaining,
            retry_after_us, delay_us, ends_at, created_at, replayed
        )
        values (
            v_position, v_id, v_txn_id, v_zone_id, v_zone_version, v_key, v_seq, v_blocked, v_reason, v_cost,
            v_zone_limit, v_remaining, v_retry_after_us, v_delay_us, v_ends_at, v_created_at, v_replayed
        );
    end loop;
    close c_check;
end;
