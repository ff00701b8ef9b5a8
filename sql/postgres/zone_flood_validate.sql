-- zone_flood_validate: refuses a row for checks that cannot have been answered blocked from memory. Not called from
-- outside.
--
-- They follow a check of the bucket that was blocked for some time, by a version of the zone whose blocked rows are
-- coalesced. Memory keeps that for a second; their row may come later by as long as a call may take.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket
--            p_checks      how many they are said to be
--            p_now         the time
-- Locks      nothing
-- Errors     TG003 no such check was blocked within a minute
create function zone_flood_validate(p_zone_id int, p_bucket_key text, p_checks int, p_now timestamptz)
returns void
language plpgsql
as $$
begin
    perform
    from zone_txn t
    join zone_version v on v.zone_id = t.zone_id and v.version = t.zone_version
    where t.zone_id = p_zone_id and t.bucket_key = p_bucket_key and t.created_at >= p_now - interval '1 minute'
        and t.kind in ('check', 'reserve') and t.blocked and t.retry_after_us is not null
        and v.blocked_rows = 'coalesced'
    order by t.created_at desc, t.seq desc
    limit 1;
    if not found then
        perform zone_error('flood', p_checks::text);
    end if;
end
$$;
