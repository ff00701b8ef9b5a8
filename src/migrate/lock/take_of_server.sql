-- Row 0 is held by the transaction that is left open, however long that takes.
set session innodb_lock_wait_timeout = 60;
insert into tallygate_schema_lock (id, holder, server, alive_at)
values (0, '', '', utc_timestamp(6))
on duplicate key update id = tallygate_schema_lock.id;
start transaction;
select l.id from tallygate_schema_lock l where l.id = 0 for update;
