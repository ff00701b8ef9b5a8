-- zone_engine_items: items of a queue, for a process that decides what becomes of them.
--
-- Arguments  p_zone_id, p_bucket_key  the queue
--            p_which  waiting or dead: these, in the order in which they are taken; back: those that wait and are less important
--                     than p_band, in the opposite order; one: that of the offer p_seq
--            p_band   see p_which
--            p_after, p_seq  only those behind the item of this band and offer, in the order asked for
--            p_most   at most so many
-- Result     of each the row of its offer, the transaction that names it, units, how important it is, when it was offered, when
--            nobody waits for it any longer, where it is, when it is due, how often it was taken, whether that was the last time,
--            the row of the last take, and whether it has a payload. Times are microseconds since 1970. The last, whole, says that
--            these are all
-- Locks      nothing
drop procedure if exists zone_engine_items;
create procedure zone_engine_items(
    in p_zone_id int, in p_bucket_key varbinary(4000), in p_which varchar(20) character set ascii,
    in p_band int, in p_after int, in p_seq bigint, in p_most int
)
sql security definer
begin
    declare v_epoch datetime default timestamp'1970-01-01 00:00:00';
    if p_which = 'one' then
        select i.seq, i.txn_id, i.cost, i.band, timestampdiff(microsecond, v_epoch, i.offered_at) as offered_us,
        timestampdiff(microsecond, v_epoch, i.deadline_at) as deadline_us, i.place,
        timestampdiff(microsecond, v_epoch, i.due_at) as due_us, i.takes, i.is_last, i.receipt,
        i.payload is not null as payload
        from zone_item i force index (primary)
        where i.zone_id = p_zone_id and i.bucket_key = p_bucket_key and i.seq = p_seq;
    elseif p_which = 'back' then
        -- A comparison of two columns at once would read all from the beginning.
        select i.seq, i.txn_id, i.cost, i.band, timestampdiff(microsecond, v_epoch, i.offered_at) as offered_us,
        timestampdiff(microsecond, v_epoch, i.deadline_at) as deadline_us, i.place,
        timestampdiff(microsecond, v_epoch, i.due_at) as due_us, i.takes, i.is_last, i.receipt,
        i.payload is not null as payload
        from zone_item i force index (zone_item_order)
        where i.zone_id = p_zone_id and i.bucket_key = p_bucket_key and i.place = 'waiting'
            and i.band > p_band and i.band <= p_after and (i.band < p_after or i.seq < p_seq)
        order by i.zone_id desc, i.bucket_key desc, i.place desc, i.band desc, i.seq desc
        limit p_most;
    else
        select i.seq, i.txn_id, i.cost, i.band, timestampdiff(microsecond, v_epoch, i.offered_at) as offered_us,
        timestampdiff(microsecond, v_epoch, i.deadline_at) as deadline_us, i.place,
        timestampdiff(microsecond, v_epoch, i.due_at) as due_us, i.takes, i.is_last, i.receipt,
        i.payload is not null as payload
        from zone_item i force index (zone_item_order)
        where i.zone_id = p_zone_id and i.bucket_key = p_bucket_key and i.place = p_which
            and i.band >= p_after and (i.band > p_after or i.seq > p_seq)
        order by i.zone_id, i.bucket_key, i.place, i.band, i.seq
        limit p_most;
    end if;
    select true as whole;
end;
