-- zone_level_carry: takes a token bucket's level through the changes of its zone's policy.
--
-- The level is brought to each change's time under the version before it and then kept as the same number
-- of tokens, rounded down, capped by the new capacity. A version of another algorithm forgets it: null,
-- which means full to the next token bucket.
--
-- Arguments  p_zone_id  the zone
--            p_from     the version under which p_level was left
--            p_to       the version in force
--            p_level    the level at p_at, in window_us/rate_gcd units of version p_from to a token;
--                       afterwards in those of version p_to
--            p_at       when it was left; afterwards when it holds
--            p_now      the time of the decision; a change after it counts as made at it
-- Locks      the versions in between, shared, until the transaction ends
drop procedure if exists zone_level_carry;
create procedure zone_level_carry(
    in    p_zone_id int,
    in    p_from    int,
    in    p_to      int,
    inout p_level   bigint,
    inout p_at      datetime(6),
    in    p_now     datetime(6)
)
sql security definer
begin
    declare v_done          boolean default false;
    declare v_first         boolean default true;
    declare v_algorithm     varchar(20);
    declare v_per_token     bigint;
    declare v_per_us        bigint;
    declare v_capacity      bigint;
    declare v_changed_at    datetime(6);
    declare v_old_algorithm varchar(20);
    declare v_old_per_token bigint;
    declare v_old_per_us    bigint;
    declare v_old_capacity  bigint;
    declare v_level         decimal(65);
    declare c_version cursor for
        select v.algorithm, v.window_us div v.rate_gcd, v.rate div v.rate_gcd, coalesce(v.burst, v.rate), v.changed_at
        from zone_version v
        where v.zone_id = p_zone_id and v.version between p_from and p_to
        order by v.version
        -- A joined caller's snapshot may be older than the newest versions.
        lock in share mode;
    declare continue handler for not found set v_done = true;
    open c_version;
    versions: loop
        fetch c_version into v_algorithm, v_per_token, v_per_us, v_capacity, v_changed_at;
        if v_done then
            leave versions;
        end if;
        if not v_first then
            set v_changed_at = greatest(least(v_changed_at, p_now), p_at);
            if p_level is not null and v_old_algorithm = 'token-bucket' and v_algorithm = 'token-bucket' then
                set v_level = least(
                    p_level + cast(timestampdiff(microsecond, p_at, v_changed_at) as decimal(65)) * v_old_per_us,
                    cast(v_old_capacity as decimal(65)) * v_old_per_token
                );
                set v_level = (v_level * v_per_token - mod(v_level * v_per_token, v_old_per_token)) / v_old_per_token;
                set p_level = least(v_level, cast(v_capacity as decimal(65)) * v_per_token);
            else
                set p_level = null;
            end if;
            set p_at = v_changed_at;
        end if;
        set v_first = false;
        set v_old_algorithm = v_algorithm;
        set v_old_per_token = v_per_token;
        set v_old_per_us = v_per_us;
        set v_old_capacity = v_capacity;
    end loop;
    close c_version;
end;
