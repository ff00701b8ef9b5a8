-- zone_bucket_leave: leaves a bucket of which there is nothing here to another database, in a transaction of its own.
--
-- Nothing happens in it here any more: whoever asks is told where it is. Of a bucket in use this neither waits for the lock
-- nor changes anything.
--
-- Arguments  p_zone        the zone: its name, or its number
--            p_bucket_key  the bucket, 1 to 255 bytes of UTF-8 without control characters
--            p_to          the other database, by the name that callers know: 1 to 64 characters
-- Result     one row: is_left, 1 when it is left to that one, now or before; 0 when it is here
-- Locks      the bucket's row, see zone_bucket_open, until it returns
-- Errors     TG001 (31001) there is no such zone; TG003 (31003) a value is out of range; TG011 (31011) it was moved to yet
--            another database; 1205 the lock was not had in time; 1568 a transaction is open; it stays as it is
drop procedure if exists zone_bucket_leave;
create procedure zone_bucket_leave(
    in p_zone       varchar(1000) character set utf8mb4,
    in p_bucket_key varchar(4000) character set utf8mb4,
    in p_to         varchar(4000) character set utf8mb4
)
sql security definer
begin
    declare v_zone_id  int;
    declare v_key      varbinary(4000) default cast(p_bucket_key as binary);
    declare v_seq      bigint;
    declare v_moved_to varchar(64) character set utf8mb4;
    declare v_is_left  boolean default false;
    declare continue handler for not found begin end;
    if p_to is null or char_length(p_to) not between 1 and 64 then
        call zone_error('place', coalesce(char_length(p_to), 0), null, null);
    end if;
    -- Fails with 1568 inside an open transaction, and leaves that as it is.
    set transaction isolation level read committed;
    begin
        declare exit handler for sqlexception
        begin
            rollback and no chain no release;
            resignal;
        end;
        start transaction;
        call zone_number(p_zone, v_zone_id);
        select b.seq, b.moved_to
        into v_seq, v_moved_to
        from zone_bucket_lock b
        where b.zone_id = v_zone_id and b.bucket_key = v_key;
        if v_seq is null or v_seq = 0 or v_moved_to is not null then
            call zone_bucket_open(v_zone_id, p_bucket_key);
            select b.seq, b.moved_to
            into v_seq, v_moved_to
            from zone_bucket_lock b
            where b.zone_id = v_zone_id and b.bucket_key = v_key
            for update;
            if cast(v_moved_to as binary) <> cast(p_to as binary) then
                call zone_error('elsewhere', v_moved_to, null, null);
            end if;
            if v_seq = 0 and v_moved_to is null then
                update zone_bucket_lock b
                set b.row_hash = unhex(sha2(concat(b.row_hash, cast(p_to as binary)), 256)),
                    b.moved_to = p_to
                where b.zone_id = v_zone_id and b.bucket_key = v_key;
            end if;
            set v_is_left = v_seq = 0 or v_moved_to is not null;
        end if;
        commit and no chain no release;
    end;
    select v_is_left as is_left;
end;
