-- The load of a queue that arrives. The argument lists the columns in this order.
insert into zone_queue (zone_id, bucket_key, waiting, away, settled_at)
select j.zone_id, left(cast(j.bucket_key as binary), 255), j.waiting, j.away,
    date_add(timestamp'1970-01-01 00:00:00', interval j.settled_us microsecond)
from json_table(?, '$[*]' columns (
    zone_id int path '$[0]',
    bucket_key varchar(255) character set utf8mb4 path '$[1]',
    waiting bigint path '$[2]',
    away bigint path '$[3]',
    settled_us bigint path '$[4]'
)) j
