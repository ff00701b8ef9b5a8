-- zone_convert: carries what was used under one policy over to the next. Not called from outside.
--
-- Arguments  p_head     the bucket as the old policy left it, its level brought to p_at_us
--            p_old      the old policy
--            p_new      the new one
--            p_running  what the change does to buckets in use: as-is, proportional or reset
--            p_at_us    the time of the change
-- Result     the bucket under the new policy
-- Locks      nothing
-- Errors     TG005 the ledger lacks rows of the window
create function zone_convert(
    p_head    zone_bucket_lock,
    p_old     zone_version,
    p_new     zone_version,
    p_running text,
    p_at_us   bigint
)
returns zone_bucket_lock
language plpgsql
as $$
declare
    c_old     constant text := zone_family(p_old.algorithm);
    c_new     constant text := zone_family(p_new.algorithm);
    v_head    zone_bucket_lock := p_head;
    v_carried bigint;
    -- how much is used, and of how much
    v_used    bigint;
    v_of      bigint;
begin
    if p_running = 'reset' then
        v_carried := 0;
        v_head.level := null;
    elsif p_running = 'proportional' and c_old <> 'held' and c_new <> 'held' then
        if c_old = 'level' then
            v_of := zone_level_capacity(p_old);
            v_used := zone_clamp(v_of::numeric - coalesce(p_head.level, v_of));
        else
            v_of := zone_limit(p_old);
            v_used := zone_window_used(zone_window_make(p_old, p_head, p_at_us), p_at_us);
        end if;
        if c_new = 'window' then
            -- More than four times what any limit can be would say nothing more.
            v_carried := least(zone_share_up(v_used, zone_limit(p_new), v_of), 4398046511104);
            v_head.level := null;
        else
            v_head.level := zone_level_clamp(
                p_new,
                zone_level_capacity(p_new)::numeric - zone_share_up(v_used, zone_level_capacity(p_new), v_of)
            );
        end if;
    elsif c_old = 'level' and c_new = 'level' and p_head.level is not null then
        -- The same number of tokens; the one conversion that rounds, down.
        v_head.level := zone_level_clamp(
            p_new,
            zone_share(p_head.level, p_new.window_us / p_new.rate_gcd, p_old.window_us / p_old.rate_gcd)
        );
    else
        v_head.level := null;
    end if;
    if v_carried is not null then
        v_head.carried := v_carried;
        v_head.carried_at := zone_time(p_at_us);
        v_head.carried_total := p_head.spent_total;
        v_head.carried_seq := p_head.seq;
    end if;
    return v_head;
end
$$;
