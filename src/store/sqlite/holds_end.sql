-- Forgets what has ended, in zones that never ask for it again. ?1 lists [zone_id, bucket_key, now].
delete from zone_hold
where (zone_id, bucket_key, seq) in (
    select h.zone_id, h.bucket_key, h.seq
    from jsonb_each(?1) j
    cross join zone_hold h indexed by zone_hold_ends
    where h.zone_id = j.value ->> 0 and h.bucket_key = j.value ->> 1 and h.ends_at <= j.value ->> 2
)
