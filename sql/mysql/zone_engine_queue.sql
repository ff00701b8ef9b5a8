-- zone_engine_queue: how much was in a queue when it last changed, and the next items that are due.
--
-- Arguments  p_zone_id, p_bucket_key  the queue
--            p_due_us                 by when they are due, in microseconds since 1970
--            p_after_us, p_after_seq  only those behind the one that is due at this time, of the offer in this row
--            p_most                   at most so many
-- Result     units that wait and units that are away, and by when items were settled, with each item as zone_engine_items tells
--            it, in the order in which they are due; one row without an item where none is due; none where nothing was ever offered.
--            The last, whole, says that these are all
-- Locks      nothing
drop procedure if exists zone_engine_queue;
create procedure zone_engine_queue(
    in p_zone_id int, in p_bucket_key varbinary(4000), in p_due_us bigint, in p_after_us bigint, in p_after_seq bigint,
    in p_most int
)
sql security definer
begin
    declare v_epoch datetime default timestamp'1970-01-01 00:00:00';
    select q.waiting, q.away, timestampdiff(microsecond, v_epoch, q.settled_at) as settled_us, i.seq, i.txn_id, i.cost, i.band, timestampdiff(microsecond, v_epoch, i.offered_at) as offered_us,
        timestampdiff(microsecond, v_epoch, i.deadline_at) as deadline_us, i.place,
        timestampdiff(microsecond, v_epoch, i.due_at) as due_us, i.takes, i.is_last, i.receipt,
        i.payload is not null as payload
    from zone_queue q force index (primary)
    left join zone_item i force index (zone_item_due)
        on i.zone_id = q.zone_id and i.bucket_key = q.bucket_key
            and i.due_at <= date_add(v_epoch, interval p_due_us microsecond)
            and i.due_at >= date_add(v_epoch, interval p_after_us microsecond)
            and (i.due_at > date_add(v_epoch, interval p_after_us microsecond) or i.seq > p_after_seq)
    where q.zone_id = p_zone_id and q.bucket_key = p_bucket_key
    order by i.due_at, i.seq
    limit p_most;
    select true as whole;
end;
