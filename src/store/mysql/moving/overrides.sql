-- Limits of a bucket that arrives. The argument lists the columns in this order.
insert into zone_override (
    zone_id, bucket_key, seq, rate, window_us, burst, rate_gcd, ban_exempt, ends_at
)
select
    j.zone_id, left(cast(j.bucket_key as binary), 255), j.seq, j.rate, j.window_us, j.burst, j.rate_gcd,
    j.ban_exempt, date_add(timestamp'1970-01-01 00:00:00', interval j.ends_at microsecond)
from json_table(?, '$[*]' columns (
    zone_id int path '$[0]',
    bucket_key varchar(255) character set utf8mb4 path '$[1]',
    seq bigint path '$[2]',
    rate bigint path '$[3]',
    window_us bigint path '$[4]',
    burst bigint path '$[5]',
    rate_gcd bigint path '$[6]',
    ban_exempt int path '$[7]',
    ends_at bigint path '$[8]'
)) j
