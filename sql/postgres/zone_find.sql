-- zone_find: the number of a zone by its name; null when there is none.
--
-- Arguments  p_name  the name
-- Result     its id
-- Locks      nothing
create function zone_find(p_name text)
returns int
language sql
stable
security definer
set search_path from current
as $$
    select z.id
    from zone_master z
    where z.name = p_name
$$;
