-- ?3 lists the spans.
insert into zone_calendar (zone_id, version, starts_us, ends_us, offset_us, shown_us)
select ?1, ?2, j.value ->> 0, j.value ->> 1, j.value ->> 2, j.value ->> 3
from jsonb_each(?3) j
