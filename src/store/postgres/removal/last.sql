-- The last removal of a zone, the time of the next, and who is logged in. $1 the zone, $2 now.
select r.seq, r.row_hash, greatest($2, r.removed_at) as removed_at, session_user::text as login
from (values (1)) o
left join (
    select l.seq, l.row_hash, l.removed_at
    from zone_removal l
    where l.zone_id = $1
    order by l.seq desc
    limit 1
) r on true
