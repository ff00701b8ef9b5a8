-- zone_find: what a caller must know of a zone before it asks, by the zone's name.
--
-- Arguments  p_name  the name
-- Result     one row: its id, the version in force, and of that blocked_rows, whether it
--            bans, and on_outage; none when there is no such zone
-- Locks      nothing
drop procedure if exists zone_find;
create procedure zone_find(in p_name varchar(1000) character set utf8mb4)
sql security definer
begin
    select z.id, z.version, z.blocked_rows, z.ban_after is not null as bans, z.on_outage
    from zone_master z
    where z.name = p_name collate utf8mb4_bin
        and char_length(z.name) = char_length(p_name);
end;
