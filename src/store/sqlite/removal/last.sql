-- The last removal of a zone, the time of the next, and null for who is logged in. ?1 the zone, ?2 the time.
select r.seq, r.row_hash, max(?2, coalesce(r.removed_at, ?2)) as removed_at, null as login
from (select 1) o
left join (
    select l.seq, l.row_hash, l.removed_at
    from zone_removal l
    where l.zone_id = ?1
    order by l.seq desc
    limit 1
) r on true
