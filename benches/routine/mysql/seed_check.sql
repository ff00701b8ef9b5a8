-- The seed's way of counting: a row to lock per bucket, and a count over the window.
create procedure seed_check(in p_zone_id int, in p_bucket_key varchar(255))
begin
    declare v_rate    int;
    declare v_window  bigint;
    declare v_key     varchar(255);
    declare v_blocked tinyint;
    declare v_id      bigint;
    select z.rate, z.`window` into v_rate, v_window from seed_zone z where z.id = p_zone_id;
    insert ignore into seed_bucket_lock (bucket_key) values (p_bucket_key);
    start transaction;
    select b.bucket_key into v_key from seed_bucket_lock b where b.bucket_key = p_bucket_key for update;
    select if(count(*) >= v_rate, 1, 0)
    into v_blocked
    from seed_txn t
    where t.zone_id = p_zone_id and t.bucket_key = p_bucket_key and t.blocked = 0
        and t.created_at >= now() - interval v_window second;
    insert into seed_txn (zone_id, bucket_key, blocked) values (p_zone_id, p_bucket_key, v_blocked);
    set v_id = last_insert_id();
    commit;
    select v_blocked as blocked, v_id as id;
end
