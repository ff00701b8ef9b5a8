-- The further columns of some heads, and the override in force. ?1 lists [zone_id, bucket_key].
select j.key as n, b.banned_until, b.bans, b.ban_strikes, b.carried, b.carried_at, b.carried_total, b.carried_seq,
    b.override_seq, b.holding, b.moved_to, o.rate, o.window_us, o.burst, o.rate_gcd, o.ban_exempt, o.ends_at
from jsonb_each(?1) j
cross join zone_bucket_lock b
left join zone_override o on o.zone_id = b.zone_id and o.bucket_key = b.bucket_key and o.seq = b.override_seq
where b.zone_id = j.value ->> 0 and b.bucket_key = j.value ->> 1
