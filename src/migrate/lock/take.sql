-- The row is the asker's where there was none, and where its maker is gone. The assignments are made in their order.
insert into tallygate_schema_lock (id, holder, server, alive_at)
values (1, ?, concat(@@hostname, ':', @@port), utc_timestamp(6))
on duplicate key update
    holder = if(
        server = concat(@@hostname, ':', @@port) or alive_at < utc_timestamp(6) - interval ? second, ?, holder
    ),
    server = if(holder = ?, concat(@@hostname, ':', @@port), server),
    alive_at = if(holder = ?, utc_timestamp(6), alive_at)
