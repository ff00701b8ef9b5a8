-- The last removal of a zone, the time of the next, and who is logged in. Now, and the zone.
select r.seq, r.row_hash, greatest(o.now_at, coalesce(r.removed_at, o.now_at)) as removed_at, user() as login
from (select cast(? as datetime(6)) as now_at) o
left join (
    select l.seq, l.row_hash, l.removed_at
    from zone_removal l
    where l.zone_id = ?
    order by l.seq desc
    limit 1
) r on true
