-- zone_policy: what a version of a zone admits in a bucket with an override. Not called from outside.
--
-- Arguments  p_zone      the version
--            p_override  the override; null, or one without a rate, changes nothing
-- Result     the version, with the limit of the override
-- Locks      nothing
-- Errors     TG008 there is no such algorithm
create function zone_policy(p_zone zone_version, p_override zone_override)
returns zone_version
language plpgsql
as $$
declare
    v_zone zone_version := p_zone;
begin
    if p_override.rate is not null then
        v_zone.rate := p_override.rate;
        v_zone.rate_gcd := p_override.rate_gcd;
        -- A calendar's periods, and a window cut into slots, stay what they are.
        if p_zone.calendar is null and p_zone.slots is null then
            v_zone.window_us := p_override.window_us;
        end if;
        v_zone.burst := case when zone_family(p_zone.algorithm) = 'level' then p_override.burst end;
    end if;
    return v_zone;
end
$$;
