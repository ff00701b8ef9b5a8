-- zone_batch_close: drops the temporary tables of a batch, in whatever state they are; not called from outside.
--
-- It commits nothing: dropping a temporary table leaves the transaction open.
--
-- Locks      nothing
drop procedure if exists zone_batch_close;
create procedure zone_batch_close()
sql security definer
begin
    drop temporary table if exists
        zone_batch_check, zone_batch_head, zone_batch_special, zone_batch_bucket, zone_batch_state,
        zone_batch_hash, zone_batch_wait, zone_batch_past, zone_decision;
end;
