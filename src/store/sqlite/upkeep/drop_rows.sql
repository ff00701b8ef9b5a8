-- Removes the oldest rows of a zone. ?1 the zone, ?2 the time before which they are, ?3 how many.
delete from zone_txn
where id in (
    select t.id
    from zone_txn t
    where t.zone_id = ?1 and t.created_at < ?2
    order by t.created_at, t.id
    limit ?3
)
