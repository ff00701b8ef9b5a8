-- zone_txn_id_make: makes a version 7 UUID; not called from outside.
--
-- Arguments  p_now_us  its time, in microseconds since 1970
--            o_txn_id  the UUID
-- Locks      nothing
drop procedure if exists zone_txn_id_make;
create procedure zone_txn_id_make(in p_now_us bigint, out o_txn_id binary(16))
sql security definer
begin
    set o_txn_id = unhex(concat(
        lpad(hex(p_now_us div 1000), 12, '0'),
        '7', substring(hex(random_bytes(2)), 2, 3),
        hex(128 + conv(substring(hex(random_bytes(1)), 1, 2), 16, 10) mod 64),
        hex(random_bytes(7))
    ));
end;
