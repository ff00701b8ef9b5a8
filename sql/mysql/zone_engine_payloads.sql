-- zone_engine_payloads: what was given with items, and what of it their rows say.
--
-- Arguments  p_zone_id, p_bucket_key  the queue
--            p_seqs                   the rows of the items' offers: [[row], …]
-- Result     of each that is there its row, the payload and the recorded hash of it, either of which may be null. The last, whole,
--            says that these are all
-- Locks      nothing
drop procedure if exists zone_engine_payloads;
create procedure zone_engine_payloads(
    in p_zone_id int, in p_bucket_key varbinary(4000), in p_seqs json
)
sql security definer
begin
    select i.seq, i.payload, t.member as recorded
    from json_table(p_seqs, '$[*]' columns (seq bigint path '$[0]')) j
    straight_join zone_item i force index (primary)
        on i.zone_id = p_zone_id and i.bucket_key = p_bucket_key and i.seq = j.seq
    straight_join zone_txn t force index (zone_txn_bucket_uq)
        on t.zone_id = i.zone_id and t.bucket_key = i.bucket_key and t.created_at = i.offered_at and t.seq = i.seq
    where t.sealed;
    select true as whole;
end;
