-- zone_find: the number of a zone by its name; null when there is none.
--
-- Arguments  p_name  the name
-- Result     one row: id
-- Locks      nothing
drop procedure if exists zone_find;
create procedure zone_find(in p_name varchar(1000) character set utf8mb4)
sql security definer
begin
    select max(z.id) as id
    from zone_master z
    where z.name = p_name collate utf8mb4_bin
        and char_length(z.name) = char_length(p_name);
end;
