-- zone_ask_validate: refuses what an algorithm has no meaning for. Not called from outside.
--
-- Arguments  p_algorithm  the algorithm
--            p_cost, p_member, p_ttl_us  what is asked, as in zone_decide
-- Locks      nothing
-- Errors     TG003 the algorithm has no use for what is asked
create function zone_ask_validate(p_algorithm text, p_cost bigint, p_member text, p_ttl_us bigint)
returns void
language plpgsql
as $$
begin
    if p_algorithm = 'distinct' then
        if p_cost > 1 then
            perform zone_error('cost of member', p_cost::text);
        elsif p_cost > 0 and p_member is null then
            perform zone_error('no member');
        end if;
    elsif p_member is not null then
        perform zone_error('member', p_algorithm);
    end if;
    if p_algorithm = 'capacity' and p_cost > 0 then
        perform zone_error('capacity');
    end if;
    if p_algorithm = 'queue' and p_cost > 0 then
        perform zone_error('queue');
    end if;
    if p_ttl_us is not null and zone_family(p_algorithm) = 'held' then
        perform zone_error('ttl', p_algorithm);
    end if;
end
$$;
