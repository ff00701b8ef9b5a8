-- zone_version_of: a version of a zone. Not called from outside.
--
-- Arguments  p_zone_id  the zone
--            p_version  its version
-- Result     the version
-- Locks      nothing
create function zone_version_of(p_zone_id int, p_version int)
returns zone_version
language plpgsql
as $$
begin
    return (
        select v
        from zone_version v
        where v.zone_id = p_zone_id and v.version = p_version
    );
end
$$;
