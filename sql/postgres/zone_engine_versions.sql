-- zone_engine_versions: the versions of a zone from one on, for a process that decides by itself.
--
-- Arguments  p_zone_id  the zone
--            p_from     its first version that matters
-- Result     the versions, in order, without who set each
-- Locks      nothing
create function zone_engine_versions(p_zone_id int, p_from int)
returns setof zone_version
language sql
stable
security definer
set search_path from current
as $$
    select jsonb_populate_record(v, '{"changed_by": null, "login": null}')
    from zone_version v
    where v.zone_id = p_zone_id and v.version >= p_from
    order by v.version
$$;
