select c.version, c.starts_us, c.ends_us, c.offset_us, c.shown_us
from zone_calendar_view c
where c.zone_id = $1
order by c.version, c.starts_us
