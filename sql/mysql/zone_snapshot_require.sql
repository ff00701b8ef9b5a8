-- zone_snapshot_require: refuses where the caller's snapshot hides rows of a bucket; not called from outside.
--
-- Rows are committed in their order, so the head tells; behind rows of the transaction's own that zone_engine_hold_one knows of, what
-- it remembers.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket, whose lock is held
--            p_seq         the seq of its last row, read under the lock
-- Locks      nothing
-- Errors     TG007 (31007) the snapshot hides rows
drop procedure if exists zone_snapshot_require;
create procedure zone_snapshot_require(in p_zone_id int, in p_bucket_key varbinary(255), in p_seq bigint)
sql security definer
begin
    declare v_epoch  datetime default timestamp'1970-01-01 00:00:00';
    declare v_seen   bigint;
    declare v_hidden varchar(100) character set ascii; -- the first row that is hidden: seq and time
    declare v_us     bigint;
    declare continue handler for not found begin end;
    select b.seq
    into v_seen
    from zone_bucket_lock b
    where b.zone_id = p_zone_id and b.bucket_key = p_bucket_key;
    if json_valid(@tallygate_hidden) then
        set v_hidden = json_extract(@tallygate_hidden, concat('$."', p_zone_id, ' ', hex(p_bucket_key), '"'));
    end if;
    if v_hidden is not null then
        set v_us = json_extract(v_hidden, '$[1]');
        select -1
        into v_seen
        from dual
        where not exists (
            select 1
            from zone_txn t force index (zone_txn_bucket_uq)
            where t.zone_id = p_zone_id and t.bucket_key = p_bucket_key and t.seq = json_extract(v_hidden, '$[0]')
                and t.created_at = date_add(v_epoch, interval v_us microsecond)
        );
    end if;
    if not v_seen <=> p_seq then
        call zone_error('old snapshot', null, null, null);
    end if;
end;
