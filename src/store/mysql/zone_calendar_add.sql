-- The last argument lists the spans.
insert into zone_calendar (zone_id, version, starts_us, ends_us, offset_us, shown_us)
select ?, ?, j.starts_us, j.ends_us, j.offset_us, j.shown_us
from json_table(
    ?,
    '$[*]' columns (
        starts_us bigint path '$[0]',
        ends_us   bigint path '$[1]',
        offset_us bigint path '$[2]',
        shown_us  bigint path '$[3]'
    )
) j
