-- zone_charge_find: the charge that a refund gives back, or the refund that was recorded of it before; not called from outside.
--
-- Arguments  p_zone_id  the zone
--            p_bucket_key, p_txn_id, p_joined  as in zone_decide
--            o_id … o_created_at  columns of the earlier refund; null where there is none
--            o_back, o_back_seq, o_back_us  the charge: its amount, row and time
-- Locks      the bucket's row, until the transaction ends
-- Errors     TG002 (31002) there is nothing to give back, or not so, or it was ended otherwise; TG003 (31003) the transaction was not
--            decided in this bucket
drop procedure if exists zone_charge_find;
create procedure zone_charge_find(
    in  p_zone_id      int,
    in  p_bucket_key   varchar(4000) character set utf8mb4,
    in  p_txn_id       varbinary(100),
    in  p_joined       boolean,
    out o_id           bigint,
    out o_zone_version int,
    out o_seq          bigint,
    out o_remaining    bigint,
    out o_created_at   datetime(6),
    out o_back         bigint,
    out o_back_seq     bigint,
    out o_back_us      bigint
)
sql security definer
begin
    declare v_key   varbinary(4000) default cast(p_bucket_key as binary);
    declare v_kind  varchar(20) character set ascii;
    declare v_fault varchar(20) character set ascii;
    declare v_seq   bigint;
    declare continue handler for not found begin end;
    if length(p_txn_id) <> 16 then
        call zone_error('txn bytes', length(p_txn_id), null, null);
    elseif p_txn_id is null or p_txn_id = repeat(x'00', 16) then
        call zone_error('no txn', null, null, null);
    end if;
    call zone_bucket_open(p_zone_id, p_bucket_key, false);
    if p_joined then
        select b.seq
        into v_seq
        from zone_bucket_lock b
        where b.zone_id = p_zone_id and b.bucket_key = v_key
        for update;
        call zone_snapshot_require(p_zone_id, v_key, v_seq);
    end if;
    select r.id, r.kind, r.zone_version, r.seq, r.cost, r.remaining, r.created_at
    into o_id, v_kind, o_zone_version, o_seq, o_back, o_remaining, o_created_at
    from (
        select t.id, t.kind, t.zone_version, t.seq, t.cost, t.remaining, t.created_at
        from zone_txn t force index (zone_txn_bucket_txn)
        where t.zone_id = p_zone_id and t.bucket_key = v_key and t.txn_id = p_txn_id and t.sealed
            and t.kind in ('refund', 'settle', 'cancel', 'release')
        limit 1
    ) r;
    if v_kind <> 'refund' then
        call zone_error('other end', hex(p_txn_id), v_kind, o_back);
    end if;
    if o_id is null then
        select r.seq, r.spent, timestampdiff(microsecond, timestamp'1970-01-01 00:00:00', r.created_at),
            case
                when r.kind = 'local' then 'taken'
                when r.blocked then 'charge blocked'
                when r.spent = 0 then 'charge of nothing'
                when r.kind = 'reserve' then 'charge reserved'
                when r.ends_at is not null then 'charge of slot'
            end
        into o_back_seq, o_back, o_back_us, v_fault
        from (
            select t.seq, t.spent, t.created_at, t.kind, t.blocked, t.ends_at
            from zone_txn t force index (zone_txn_bucket_txn)
            where t.zone_id = p_zone_id and t.bucket_key = v_key and t.txn_id = p_txn_id and t.sealed
                and t.kind in ('check', 'reserve', 'unchecked', 'local')
            limit 1
        ) r;
        if o_back_seq is null then
            call zone_error('no charge', hex(p_txn_id), null, null);
        elseif v_fault is not null then
            call zone_error(v_fault, null, null, null);
        end if;
    end if;
end;
