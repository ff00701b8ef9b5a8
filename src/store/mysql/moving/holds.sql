-- The holds of a bucket that arrives. The argument lists the columns in this order.
insert into zone_hold (
    zone_id, bucket_key, seq, charged_at, amount, ends_at, member
)
select
    j.zone_id, left(cast(j.bucket_key as binary), 255), j.seq,
    date_add(timestamp'1970-01-01 00:00:00', interval j.charged_at microsecond), j.amount,
    date_add(timestamp'1970-01-01 00:00:00', interval j.ends_at microsecond), left(cast(j.member as binary), 255)
from json_table(?, '$[*]' columns (
    zone_id int path '$[0]',
    bucket_key varchar(255) character set utf8mb4 path '$[1]',
    seq bigint path '$[2]',
    charged_at bigint path '$[3]',
    amount bigint path '$[4]',
    ends_at bigint path '$[5]',
    member varchar(255) character set utf8mb4 path '$[6]'
)) j
