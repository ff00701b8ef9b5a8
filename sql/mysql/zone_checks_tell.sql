-- zone_checks_tell: the answers of a call, as its result; not called from outside.
--
-- Arguments  p_told  an array for each check: its place, and the columns of zone_check's result in their order, bytes in
--                    hex, times in microseconds since 1970
-- Result     a row for each, in the order of their places
-- Locks      nothing
drop procedure if exists zone_checks_tell;
create procedure zone_checks_tell(in p_told longtext character set utf8mb4)
sql security definer
begin
    declare v_epoch datetime default timestamp'1970-01-01 00:00:00';
    select j.id, cast(unhex(j.txn) as binary(16)) as txn_id, j.zone_id, j.zone_version, j.bucket_key, j.seq, j.blocked,
        j.reason, j.cost, j.zone_limit, j.remaining, j.retry_after_us, j.delay_us,
        date_add(v_epoch, interval j.ends_us microsecond) as ends_at,
        date_add(v_epoch, interval j.created_us microsecond) as created_at, j.replayed
    from json_table(concat('[', p_told, ']'), '$[*]' columns (
        position       int path '$[0]',
        id             bigint path '$[1]',
        txn            varchar(32) character set ascii path '$[2]',
        zone_id        int path '$[3]',
        zone_version   int path '$[4]',
        bucket_key     varchar(255) character set utf8mb4 path '$[5]',
        seq            bigint path '$[6]',
        blocked        boolean path '$[7]',
        reason         varchar(20) character set ascii path '$[8]',
        cost           bigint path '$[9]',
        zone_limit     bigint path '$[10]',
        remaining      bigint path '$[11]',
        retry_after_us bigint path '$[12]',
        delay_us       bigint path '$[13]',
        ends_us        bigint path '$[14]',
        created_us     bigint path '$[15]',
        replayed       boolean path '$[16]'
    )) j
    order by j.position;
end;
