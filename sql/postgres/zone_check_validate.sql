-- zone_check_validate: refuses a member or a reservation that cannot be. Not called from outside.
--
-- Arguments  p_cost, p_member, p_ttl_us  as in zone_check
-- Locks      nothing
-- Errors     TG003 a value is out of range
create function zone_check_validate(p_cost bigint, p_member text, p_ttl_us bigint)
returns void
language plpgsql
as $$
begin
    if octet_length(p_member) not between 1 and 255 or p_member ~ '[\u0001-\u001f\u007f-\u009f]' then
        perform zone_error('member bytes', octet_length(p_member)::text);
    end if;
    if p_ttl_us not between 1 and 315576000000000 then
        perform zone_error('time', 'a reservation', p_ttl_us::text);
    end if;
    if p_ttl_us is not null and p_cost = 0 then
        perform zone_error('reserve');
    end if;
end
$$;
