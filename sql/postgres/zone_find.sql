-- zone_find: what a caller must know of a zone before it asks, by the zone's name.
--
-- Arguments  p_name  the name
-- Result     one row: its id, the version in force, and of that blocked_rows, whether it
--            bans, and on_outage; none when there is no such zone
-- Locks      nothing
create function zone_find(p_name text)
returns table (id int, version int, blocked_rows text, bans boolean, on_outage text)
language sql
stable
security definer
set search_path from current
as $$
    select z.id, z.version, z.blocked_rows, z.ban_after is not null, z.on_outage
    from zone_master z
    where z.name = p_name
$$;
