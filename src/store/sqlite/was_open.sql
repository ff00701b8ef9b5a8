-- Was any version of the zone open while the database did not answer? ?1 the zone.
select exists (
    select 1
    from zone_version v
    where v.zone_id = ?1 and v.on_outage = 'open'
) as was_open
