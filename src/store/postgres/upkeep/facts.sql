-- $1 is the time.
select z.id, o.override_us, h.open, i.offered
from zone_master z
left join (
    select o.zone_id, max(o.window_us) as override_us
    from zone_override o
    join zone_bucket_lock b on b.zone_id = o.zone_id and b.bucket_key = o.bucket_key and b.override_seq = o.seq
    group by o.zone_id
) o on o.zone_id = z.id
left join (
    select h.zone_id, min(h.charged_at) as open
    from zone_hold h
    where h.ends_at > $1
    group by h.zone_id
) h on h.zone_id = z.id
left join (
    select i.zone_id, min(i.offered_at) as offered
    from zone_item i
    where (i.place in ('away', 'dead') or (i.place = 'waiting' and coalesce(i.due_at > $1, true)))
    group by i.zone_id
) i on i.zone_id = z.id
order by z.id
