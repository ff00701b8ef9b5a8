-- zone_engine_charges: the rows of buckets from a time on, for a process that will remember what was charged.
--
-- The read stands in a derived table for the reason that zone_engine_ask tells.
--
-- Arguments  p_windows  the buckets, each with the time, in microseconds since 1970: [[zone, key, time], …]
--            p_limit    the most rows of a bucket
-- Result     one for each bucket that has any: their first rows from there on, at most so many; the place of the bucket,
--            from 1; when, how much was spent, and how much in all up to there. The last, whole, says that these are all
-- Locks      nothing
drop procedure if exists zone_engine_charges;
create procedure zone_engine_charges(in p_windows json, in p_limit int)
sql security definer
begin
    declare v_epoch   datetime default timestamp'1970-01-01 00:00:00';
    declare v_done    boolean default false;
    declare v_place   bigint;
    declare v_zone_id int;
    declare v_key     varbinary(255);
    declare v_from    datetime(6);
    declare c_window cursor for
        select j.place, j.zone_id, left(cast(j.key_text as binary), 255), date_add(v_epoch, interval j.from_us microsecond)
        from json_table(p_windows, '$[*]' columns (
            place    for ordinality,
            zone_id  int path '$[0]',
            key_text varchar(255) character set utf8mb4 path '$[1]',
            from_us  bigint path '$[2]'
        )) j;
    declare continue handler for not found set v_done = true;
    open c_window;
    window_of: loop
        fetch c_window into v_place, v_zone_id, v_key, v_from;
        if v_done then
            leave window_of;
        end if;
        select v_place as place, timestampdiff(microsecond, v_epoch, r.created_at) as at_us, r.spent, r.spent_total
        from (
            select t.created_at, t.seq, t.spent, t.spent_total
            from zone_txn t force index (zone_txn_bucket_uq)
            where t.zone_id = v_zone_id and t.bucket_key = v_key and t.created_at >= v_from and t.sealed
            order by t.created_at, t.seq
            limit p_limit
        ) r
        order by r.created_at, r.seq;
    end loop;
    close c_window;
    select true as whole;
end;
