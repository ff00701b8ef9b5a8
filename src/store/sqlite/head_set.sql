insert into zone_bucket_lock (zone_id, bucket_key, seq, last_at, spent_total, level, zone_version)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7)
on conflict (zone_id, bucket_key) do update
set seq = excluded.seq,
    last_at = excluded.last_at,
    spent_total = excluded.spent_total,
    level = excluded.level,
    zone_version = excluded.zone_version
