-- zone_level_give: a level with tokens given back, and others taken without asking for room. Not called from outside.
--
-- Arguments  p_zone   the policy
--            p_level  the level; null for a full bucket
--            p_back   tokens given back
--            p_extra  tokens taken, in debt if need be
-- Result     the level
-- Locks      nothing
create function zone_level_give(p_zone zone_version, p_level bigint, p_back bigint, p_extra bigint)
returns bigint
language plpgsql
as $$
declare
    c_per_token constant numeric := p_zone.window_us / p_zone.rate_gcd;
    v_level     bigint := p_level;
begin
    if v_level is not null then
        v_level := zone_level_clamp(p_zone, v_level + p_back * c_per_token);
    end if;
    if p_extra > 0 then
        v_level := zone_level_clamp(
            p_zone,
            coalesce(v_level, zone_level_capacity(p_zone)) - p_extra * c_per_token
        );
    end if;
    return v_level;
end
$$;
