-- zone_engine_check: a check by itself in a plain zone, for a process that does not remember the bucket: decided in one round trip.
--
-- Arguments  p_own       the transaction is the routine's own; else the caller's
--            the others  as in zone_decide
-- Result     one row: the decision, and what the process then remembers of the bucket, see zone_decide
-- Locks      the bucket's row, until it returns
-- Errors     those of zone_check
drop procedure if exists zone_engine_check;
create procedure zone_engine_check(
    in p_zone_id     int,
    in p_bucket_key  varchar(4000) character set utf8mb4,
    in p_txn_id      varbinary(100),
    in p_cost        bigint,
    in p_record      boolean,
    in p_named       boolean,
    in p_lock_wait_s int,
    in p_own         boolean
)
sql security definer
begin
    call zone_decide('engine', not p_own, p_zone_id, p_bucket_key, p_txn_id, p_cost, p_record, p_named, p_lock_wait_s, null, null);
end;
