-- zone_token_bucket_make: finds the zone of a rate_limiting_request, or makes it; not called from outside.
--
-- Arguments  p_refill_per_sec  tokens a second
--            p_window_seconds  seconds in which an empty bucket fills
--            o_zone_id         the zone's number
-- Locks      the row of a zone that it makes, until the transaction ends
-- Errors     TG003 (31003) the tokens cannot be counted, the session has set insert_id, or the database is one of several; TG007
--            (31007) the caller's snapshot hides the zone
drop procedure if exists zone_token_bucket_make;
create procedure zone_token_bucket_make(
    in  p_refill_per_sec int,
    in  p_window_seconds int,
    out o_zone_id        int
)
sql security definer
make: begin
    declare v_name varchar(100) character set utf8mb4 collate utf8mb4_bin
        default concat('rate_limiting_request ', p_refill_per_sec, '/s for ', p_window_seconds, ' s');
    declare v_seen int;
    declare v_gcd  bigint default p_refill_per_sec;
    declare v_rest bigint default 1000000;
    declare v_swap bigint;
    declare v_about varchar(100) character set utf8mb4 default 'made by rate_limiting_request';
    -- Hashes of texts: in variables, since MariaDB finds their collations hard to mix.
    declare v_name_hash  varchar(64) character set ascii;
    declare v_about_hash varchar(64) character set ascii default sha2(v_about, 256);
    declare v_by_hash    varchar(64) character set ascii default sha2(session_user(), 256);
    declare v_login_hash varchar(64) character set ascii default sha2(user(), 256);
    declare continue handler for not found begin end;
    if p_refill_per_sec is null or p_window_seconds is null or p_refill_per_sec < 1 or p_window_seconds < 1
        or cast(p_refill_per_sec as signed) * p_window_seconds > 2147483647
    then
        call zone_error('tokens', p_refill_per_sec, coalesce(p_window_seconds, 'null'), null);
    end if;
    select z.id into o_zone_id from zone_master z where z.name = v_name;
    if o_zone_id is not null then
        leave make;
    end if;
    if exists (select 1 from tallygate_shard) then
        call zone_error('apart', null, null, null);
    end if;
    while v_rest <> 0 do
        set v_swap = v_gcd mod v_rest;
        set v_gcd = v_rest;
        set v_rest = v_swap;
    end while;
    set timestamp = default;
    -- By a session's own step a caller who takes back what he makes would use up the numbers of zones.
    set auto_increment_increment = @@global.auto_increment_increment,
        auto_increment_offset = @@global.auto_increment_offset;
    -- See zone_decide.
    if @@session.insert_id <> 0 or last_insert_id(0) <> 0 then
        call zone_error('insert id', @@session.insert_id, null, null);
    end if;
    insert into zone_master (
        name, description, algorithm, rate, window_us, burst, rate_gcd, version, created_at, updated_at
    )
    values (
        v_name, v_about, 'token-bucket', p_refill_per_sec, 1000000,
        p_refill_per_sec * p_window_seconds, v_gcd, 1, utc_timestamp(6), utc_timestamp(6)
    )
    on duplicate key update id = last_insert_id(id);
    set o_zone_id = last_insert_id();
    if o_zone_id = 0 then
        call zone_error('insert id', 0, null, null);
    end if;
    set v_name_hash = sha2(concat(o_zone_id, '|', v_name), 256);
    insert into zone_version (
        zone_id, version, description, algorithm, rate, window_us, burst, rate_gcd, reserve, mode, count_blocked,
        on_outage, running_buckets, durability, blocked_rows, changed_at, changed_by, row_hash
    )
    select z.id, z.version, z.description, z.algorithm, z.rate, z.window_us, z.burst, z.rate_gcd, z.reserve, z.mode,
        z.count_blocked, z.on_outage, z.running_buckets, z.durability, z.blocked_rows, z.updated_at, session_user(),
        -- The text is told in docs/chain.md.
        unhex(sha2(concat_ws(
            '|', v_name_hash, z.version, z.algorithm, z.rate, z.window_us, z.burst, z.rate_gcd, '', '', '', '',
            z.reserve, z.mode, cast(z.count_blocked as signed), '', '', '', '', '', '', z.on_outage, z.running_buckets,
            z.durability, z.blocked_rows,
            timestampdiff(microsecond, timestamp'1970-01-01 00:00:00', z.updated_at), v_about_hash, v_by_hash,
            v_login_hash, ''
        ), 256))
    from zone_master z
    where z.id = o_zone_id
    on duplicate key update version = z.version;
    -- Somebody else may have made it since the caller's snapshot, which then does not show it.
    select z.id into v_seen from zone_master z where z.id = o_zone_id;
    if v_seen is null then
        call zone_error('old snapshot', null, null, null);
    end if;
end;
