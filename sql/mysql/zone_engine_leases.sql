-- zone_engine_leases: the leases of a bucket that have not been replaced, for a process that grants another.
--
-- Arguments  p_zone_id, p_bucket_key  the bucket
-- Result     of each its row in the ledger, since when
--            the client has had leases that followed each other, whose it is, what was wanted, for how many
--            and how important, what was granted, and when it ends. Times are microseconds since 1970. The last, whole, says
--            that these are all
-- Locks      nothing
drop procedure if exists zone_engine_leases;
create procedure zone_engine_leases(in p_zone_id int, in p_bucket_key varbinary(4000))
sql security definer
begin
    declare v_epoch datetime default timestamp'1970-01-01 00:00:00';
    select h.seq, timestampdiff(microsecond, v_epoch, t.target_at) as since_us, h.member, t.cost as wants,
        t.checks as weight, t.band, h.amount as has, timestampdiff(microsecond, v_epoch, h.ends_at) as ends_us
    from zone_hold h force index (primary)
    straight_join zone_txn t force index (zone_txn_bucket_uq)
        on t.zone_id = h.zone_id and t.bucket_key = h.bucket_key and t.created_at = h.charged_at and t.seq = h.seq
    where h.zone_id = p_zone_id and h.bucket_key = p_bucket_key and t.kind = 'lease' and t.sealed;
    select true as whole;
end;
