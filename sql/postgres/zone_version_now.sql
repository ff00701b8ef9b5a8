-- zone_version_now: the version of a zone that is in force. Not called from outside.
--
-- Arguments  p_zone_id  the zone
-- Result     the version
-- Locks      nothing
-- Errors     TG001 there is no such zone
create function zone_version_now(p_zone_id int)
returns zone_version
language plpgsql
as $$
declare
    v_version int;
begin
    select z.version into v_version from zone_master z where z.id = p_zone_id;
    if not found then
        perform zone_error('no zone', p_zone_id::text);
    end if;
    return zone_version_of(p_zone_id, v_version);
end
$$;
