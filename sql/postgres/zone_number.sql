-- zone_number: the number of a zone that is named by its name, or by its number as text. Not called from outside.
--
-- Arguments  p_zone  the name, or the number
-- Result     the number
-- Locks      nothing
-- Errors     TG001 there is no such zone
create function zone_number(p_zone text)
returns int
language plpgsql
stable
as $$
declare
    v_id int;
begin
    -- No name is a number.
    if p_zone ~ '^[0-9]{1,9}$' then
        return p_zone::int;
    end if;
    select z.id into v_id from zone_master z where z.name = p_zone;
    if not found then
        perform zone_error('no zone', p_zone);
    end if;
    return v_id;
end
$$;
