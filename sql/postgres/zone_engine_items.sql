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
--            the row of the last take, and whether it has a payload. Times are microseconds since 1970
-- Locks      nothing
create function zone_engine_items(
    p_zone_id int, p_bucket_key text, p_which text, p_band int, p_after int, p_seq bigint, p_most int
)
returns table (
    seq bigint, txn_id uuid, cost bigint, band smallint, offered_us bigint, deadline_us bigint, place text, due_us bigint,
    takes int, is_last boolean, receipt bigint, payload boolean
)
language plpgsql
stable
security definer
set search_path from current
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_sort = off
set enable_incremental_sort = off
set jit = off
as $$
#variable_conflict use_column
begin
    if p_which = 'one' then
        return query
        select i.seq, i.txn_id, i.cost, i.band, zone_us(i.offered_at), zone_us(i.deadline_at), i.place, zone_us(i.due_at), i.takes,
        i.is_last, i.receipt, i.payload is not null
        from zone_item i
        where i.zone_id = p_zone_id and i.bucket_key = p_bucket_key and i.seq = p_seq;
    elsif p_which = 'back' then
        return query
        select i.seq, i.txn_id, i.cost, i.band, zone_us(i.offered_at), zone_us(i.deadline_at), i.place, zone_us(i.due_at), i.takes,
        i.is_last, i.receipt, i.payload is not null
        from zone_item i
        where i.zone_id = p_zone_id and i.bucket_key = p_bucket_key and i.place = 'waiting' and i.band > p_band
            and (i.band, i.seq) < (p_after, p_seq)
        order by i.zone_id desc, i.bucket_key desc, i.place desc, i.band desc, i.seq desc
        limit p_most;
    else
        return query
        select i.seq, i.txn_id, i.cost, i.band, zone_us(i.offered_at), zone_us(i.deadline_at), i.place, zone_us(i.due_at), i.takes,
        i.is_last, i.receipt, i.payload is not null
        from zone_item i
        where i.zone_id = p_zone_id and i.bucket_key = p_bucket_key and i.place = p_which
            and (i.band, i.seq) > (p_after, p_seq)
        order by i.zone_id, i.bucket_key, i.place, i.band, i.seq
        limit p_most;
    end if;
end
$$;
