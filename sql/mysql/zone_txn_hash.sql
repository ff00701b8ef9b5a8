-- zone_txn_hash: the hash of a row of the ledger that a routine writes; not called from outside.
--
-- SHA-256 over the hash of the row before it in the bucket, of the first over that of the bucket's name, and what the
-- row says, as bytes. They are told one by one in docs/chain.md. A number that is missing is the least bigint.
--
-- Arguments  p_before   the hash of the row before it
--            p_txn_id … p_reason  columns of the row; times are microseconds since 1970
--            o_hash     32 bytes
-- Locks      nothing
drop procedure if exists zone_txn_hash;
create procedure zone_txn_hash(
    in  p_before         binary(32),
    in  p_txn_id         binary(16),
    in  p_seq            bigint,
    in  p_zone_version   int,
    in  p_blocked        boolean,
    in  p_cost           bigint,
    in  p_spent          bigint,
    in  p_spent_total    bigint,
    in  p_remaining      bigint,
    in  p_zone_limit     bigint,
    in  p_retry_after_us bigint,
    in  p_level          bigint,
    in  p_strikes        bigint,
    in  p_target_us      bigint,
    in  p_now_us         bigint,
    in  p_kind           varchar(20) character set ascii,
    in  p_reason         varchar(20) character set ascii,
    out o_hash           binary(32)
)
sql security definer
begin
    -- It stands for one check that is not critical, and tells neither a delay nor an end, nor a text.
    set o_hash = unhex(sha2(unhex(concat(
        hex(p_before), hex(p_txn_id), lpad(hex(p_seq), 16, '0'), lpad(hex(p_zone_version), 8, '0'),
        '00000001', if(p_blocked, '01', '00'), '00',
        lpad(hex(p_cost), 16, '0'), lpad(hex(p_spent), 16, '0'), lpad(hex(p_spent_total), 16, '0'),
        lpad(hex(p_remaining), 16, '0'), lpad(hex(p_zone_limit), 16, '0'),
        coalesce(lpad(hex(p_retry_after_us), 16, '0'), '8000000000000000'),
        '8000000000000000',
        coalesce(lpad(hex(p_level), 16, '0'), '8000000000000000'), lpad(hex(p_strikes), 16, '0'),
        coalesce(lpad(hex(p_target_us), 16, '0'), '8000000000000000'), lpad(hex(p_now_us), 16, '0'),
        '8000000000000000', hex(p_kind), '7C', hex(p_reason), '0000000000'
    )), 256));
end;
