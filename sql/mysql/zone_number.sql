-- zone_number: the number of a zone that is named by its name, or by its number as text; not called from outside.
--
-- Arguments  p_zone     the name, or the number
--            p_zone_id  the number
-- Locks      the zone's name, shared, where it is named by that: a plain read would be the beginning of the transaction's
--            snapshot, and the bucket is not locked yet. A change of a zone locks its row, by the number
-- Errors     TG001 (31001) there is no such zone
drop procedure if exists zone_number;
create procedure zone_number(in p_zone varchar(4000) character set utf8mb4, out p_zone_id int)
sql security definer
begin
    declare continue handler for not found begin end;
    -- No name is a number. Without a regular expression, which takes ten times as long.
    if ascii(p_zone) between 48 and 57 and char_length(p_zone) < 10 and concat(cast(p_zone as unsigned)) = p_zone then
        set p_zone_id = p_zone;
    else
        select z.id
        into p_zone_id
        from zone_master z
        where z.name = p_zone collate utf8mb4_bin
            and char_length(z.name) = char_length(p_zone)
        lock in share mode;
        -- Not in the handler: no other one would hear of what fails there.
        if p_zone_id is null then
            call zone_error('no zone', p_zone, null, null);
        end if;
    end if;
end;
