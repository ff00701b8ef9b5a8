-- rate_limiting_request: takes one token from the bucket of a caller.
--
-- The zone follows from the two parameters and is made when there is none: a token bucket that is filled
-- with refill_per_sec tokens a second up to refill_per_sec * window_seconds. Joins the caller's transaction.
--
-- Arguments  rate_id         the bucket, 1 to 255 bytes without control characters
--            refill_per_sec  tokens a second, from 1
--            window_seconds  seconds in which an empty bucket fills, from 1
-- Result     the tokens left, or -1 when there was none to take
-- Locks      the bucket's row, until the transaction ends; on the first call with these parameters also
--            the zone's name
-- Errors     those of zone_check; TG003 also when the bucket would hold more than 2147483647 tokens
create function rate_limiting_request(rate_id text, refill_per_sec int default 2, window_seconds int default 60)
returns int
language plpgsql
security definer
set search_path from current
-- For the reasons that are given in zone_check.
set enable_sort = off
set enable_incremental_sort = off
set jit = off
as $$
declare
    v_name    constant text := format('rate_limiting_request %s/s for %s s', refill_per_sec, window_seconds);
    v_zone_id int;
    v_now     timestamptz;
    v_told    record;
begin
    if refill_per_sec is null or window_seconds is null or refill_per_sec < 1 or window_seconds < 1
        or refill_per_sec::bigint * window_seconds > 2147483647
    then
        raise exception using
            errcode = 'TG003',
            message = format(
                '%s tokens a second for %s seconds cannot be counted; use 1 to 2147483647 tokens in all',
                refill_per_sec, window_seconds
            );
    end if;
    loop
        select z.id into v_zone_id from zone_master z where z.name = v_name;
        exit when found;
        perform zone_error('apart') where exists (select from tallygate_shard);
        v_now := pg_catalog.clock_timestamp();
        insert into zone_master (
            name, description, algorithm, rate, window_us, burst, rate_gcd, version, created_at, updated_at
        )
        values (
            v_name, 'made by rate_limiting_request', 'token-bucket', refill_per_sec, 1000000,
            refill_per_sec * window_seconds, gcd(refill_per_sec, 1000000), 1, v_now, v_now
        )
        on conflict (name) do nothing
        returning zone_master.id into v_zone_id;
        if found then
            insert into zone_version (
                zone_id, version, description, algorithm, rate, window_us, burst, rate_gcd, reserve, mode,
                count_blocked, on_outage, running_buckets, durability, blocked_rows, changed_at, changed_by,
                row_hash
            )
            select z.id, z.version, z.description, z.algorithm, z.rate, z.window_us, z.burst, z.rate_gcd, z.reserve,
                z.mode, z.count_blocked, z.on_outage, z.running_buckets, z.durability, z.blocked_rows, z.updated_at,
                session_user, zone_version_hash(z, session_user::text)
            from zone_master z
            where z.id = v_zone_id;
        end if;
        exit when v_zone_id is not null;
    end loop;
    v_told := zone_decide(v_zone_id, rate_id, null, 1, true, null, false, true, false);
    return case when v_told.blocked then -1 else v_told.remaining end;
end
$$;
