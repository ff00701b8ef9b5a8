-- $3 lists the spans.
insert into zone_calendar (zone_id, version, starts_us, ends_us, offset_us, shown_us)
select $1, $2, (j.span ->> 0)::bigint, (j.span ->> 1)::bigint, (j.span ->> 2)::bigint, (j.span ->> 3)::bigint
from jsonb_array_elements($3::jsonb) as j (span)
