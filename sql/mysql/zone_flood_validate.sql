-- zone_flood_validate: refuses a row for checks that cannot have been answered blocked from memory; not called from
-- outside.
--
-- They follow a check of the bucket that was blocked for some time, by a version of the zone whose blocked rows are
-- coalesced. Memory keeps that for a second; their row may come later by as long as a call may take. A caller's snapshot
-- from before that check does not show it.
--
-- Arguments  p_zone_id     the zone
--            p_bucket_key  the bucket
--            p_checks      how many they are said to be
--            p_now_us      the time, in microseconds since 1970
-- Locks      nothing
-- Errors     TG003 (31003) no such check was blocked within a minute
drop procedure if exists zone_flood_validate;
create procedure zone_flood_validate(
    in p_zone_id    int,
    in p_bucket_key varbinary(255),
    in p_checks     int,
    in p_now_us     bigint
)
sql security definer
begin
    declare v_since datetime(6) default date_add(
        timestamp'1970-01-01 00:00:00', interval p_now_us - 60000000 microsecond
    );
    declare v_seq   bigint;
    select max(b.seq)
    into v_seq
    from (
        select t.seq
        from zone_txn t force index (zone_txn_bucket_uq)
        join zone_version v on v.zone_id = t.zone_id and v.version = t.zone_version
        where t.zone_id = p_zone_id and t.bucket_key = p_bucket_key and t.created_at >= v_since
            and t.kind in ('check', 'reserve') and t.blocked and t.retry_after_us is not null
            and v.blocked_rows = 'coalesced'
        order by t.created_at desc, t.seq desc
        limit 1
    ) b;
    if v_seq is null then
        call zone_error('flood', p_checks, null, null);
    end if;
end;
