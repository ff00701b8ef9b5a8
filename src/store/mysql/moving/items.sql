-- Items of a queue that arrives. The argument lists the columns in this order.
insert into zone_item (
    zone_id, bucket_key, seq, txn_id, cost, band, offered_at, deadline_at, place, due_at, takes, is_last, receipt, payload
)
select j.zone_id, left(cast(j.bucket_key as binary), 255), j.seq, unhex(j.txn_id), j.cost, j.band,
    date_add(timestamp'1970-01-01 00:00:00', interval j.offered_at microsecond),
    date_add(timestamp'1970-01-01 00:00:00', interval j.deadline_at microsecond), j.place,
    date_add(timestamp'1970-01-01 00:00:00', interval j.due_at microsecond), j.takes, j.is_last, j.receipt,
    left(cast(j.payload as binary), 8192)
from json_table(?, '$[*]' columns (
    zone_id int path '$[0]',
    bucket_key varchar(255) character set utf8mb4 path '$[1]',
    seq bigint path '$[2]',
    txn_id varchar(32) character set ascii path '$[3]',
    cost bigint path '$[4]',
    band int path '$[5]',
    offered_at bigint path '$[6]',
    deadline_at bigint path '$[7]',
    place varchar(20) character set ascii path '$[8]',
    due_at bigint path '$[9]',
    takes int path '$[10]',
    is_last boolean path '$[11]',
    receipt bigint path '$[12]',
    payload varchar(8192) character set utf8mb4 path '$[13]'
)) j
