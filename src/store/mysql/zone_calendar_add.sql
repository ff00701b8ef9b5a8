insert into zone_calendar (zone_id, version, starts_us, ends_us, offset_us, shown_us)
values (?, ?, ?, ?, ?, ?)
on duplicate key update version = zone_calendar.version
