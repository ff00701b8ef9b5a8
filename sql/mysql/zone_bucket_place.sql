-- zone_bucket_place: finds a place for a bucket while the list of databases changes, in a transaction of its own.
--
-- Ask the database to which the key belongs now, and then the one that it names, if that is where the key will belong. The
-- first leaves a bucket of which it has nothing to the second, and the second begins it. Of a key that the change does not concern
-- nothing is written.
--
-- Arguments  p_zone        the zone: its name, or its number
--            p_bucket_key  the bucket, 1 to 255 bytes of UTF-8 without control characters
-- Result     one row: place, the database that has the bucket, by its name; null for this one
-- Locks      the bucket's row, see zone_bucket_mark, until it returns
-- Errors     TG001 (31001) there is no such zone; TG003 (31003) the key cannot be stored; 1205 the lock was not had in time;
--            1568 a transaction is open; it stays as it is
drop procedure if exists zone_bucket_place;
create procedure zone_bucket_place(
    in p_zone       varbinary(4000),
    in p_bucket_key varbinary(4000)
)
sql security definer
begin
    declare v_zone_id int;
    declare v_now     varchar(64) character set utf8mb4;
    declare v_place   varchar(64) character set utf8mb4;
    -- Fails with 1568 inside an open transaction, and leaves that as it is.
    set transaction isolation level read committed;
    begin
        declare exit handler for sqlexception, 1265
        begin
            rollback and no chain no release;
            resignal;
        end;
        start transaction;
        call zone_number(p_zone, v_zone_id);
        if p_bucket_key is null or length(p_bucket_key) not between 1 and 255 then
            call zone_error('key', coalesce(length(p_bucket_key), 0), null, null);
        end if;
        call zone_bucket_home(left(p_bucket_key, 255), false, v_now);
        call zone_bucket_home(left(p_bucket_key, 255), true, v_place);
        if v_now is null and v_place is not null then
            call zone_bucket_mark(v_zone_id, p_bucket_key, v_place, v_place);
        else
            if v_now is not null and v_place is null then
                call zone_bucket_open(v_zone_id, p_bucket_key, true);
            end if;
            set v_place = (
                select if(count(b.seq) = 0, v_place, if(max(b.seq) > 0, max(b.moved_to), coalesce(max(b.moved_to), v_place)))
                from zone_bucket_lock b
                where b.zone_id = v_zone_id and b.bucket_key = p_bucket_key
            );
        end if;
        commit and no chain no release;
    end;
    select v_place as place;
end;
