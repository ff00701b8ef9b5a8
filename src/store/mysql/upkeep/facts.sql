-- The time, twice.
select z.id,
    (
        select max(o.window_us)
        from zone_override o
        join zone_bucket_lock b on b.zone_id = o.zone_id and b.bucket_key = o.bucket_key and b.override_seq = o.seq
        where o.zone_id = z.id
    ) as override_us,
    (
        select min(h.charged_at)
        from zone_hold h
        where h.zone_id = z.id and h.ends_at > ?
    ) as open,
    (
        select min(i.offered_at)
        from zone_item i
        where i.zone_id = z.id and (i.place in ('away', 'dead') or (i.place = 'waiting' and coalesce(i.due_at > ?, true)))
    ) as offered
from zone_master z
order by z.id
