-- The load of a queue now; and by when its items were settled without a row, where they were.
insert into zone_queue (zone_id, bucket_key, waiting, away, settled_at)
values (?1, ?2, ?3, ?4, ?5)
on conflict (zone_id, bucket_key) do update
set waiting = excluded.waiting,
    away = excluded.away,
    settled_at = max(coalesce(settled_at, excluded.settled_at), coalesce(excluded.settled_at, settled_at))
