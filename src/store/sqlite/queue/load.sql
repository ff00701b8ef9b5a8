-- The load of a queue now.
insert into zone_queue (zone_id, bucket_key, waiting, away)
values (?1, ?2, ?3, ?4)
on conflict (zone_id, bucket_key) do update
set waiting = excluded.waiting,
    away = excluded.away
