insert into zone_calendar (zone_id, version, starts_us, ends_us, offset_us, shown_us)
values ($1, $2, $3, $4, $5, $6)
on conflict (zone_id, version, starts_us) do nothing
