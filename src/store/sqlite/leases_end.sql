-- A lease takes the place of the one that its client had. ?1 lists [zone_id, bucket_key, member, seq of the lease].
delete from zone_hold
where (zone_id, bucket_key, seq) in (
    select h.zone_id, h.bucket_key, h.seq
    from jsonb_each(?1) j
    cross join zone_hold h
    where h.zone_id = j.value ->> 0 and h.bucket_key = j.value ->> 1 and h.member = j.value ->> 2 and h.seq < j.value ->> 3
)
