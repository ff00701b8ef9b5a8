-- zone_engine_held_by: was a version of a zone in force when a bucket was held? Not called from outside.
--
-- A caller's transaction should not fail since the policy changes between two of its statements.
--
-- Arguments  p_zone_id, p_zone_version  the version, which has been replaced
--            p_at  the time of the row that it decided
-- Result     whether the next version came into force after that time
-- Locks      nothing
create function zone_engine_held_by(p_zone_id int, p_zone_version int, p_at timestamptz)
returns boolean
language sql
stable
as $$
    select exists (
        select
        from zone_version v
        where v.zone_id = p_zone_id and v.version = p_zone_version + 1 and v.changed_at >= p_at
    )
$$;
