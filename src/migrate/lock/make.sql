create table if not exists tallygate_schema_lock (
    id tinyint not null primary key,
    -- Which migrator, and on which server.
    holder binary(16) not null,
    server varchar(300) character set utf8mb4 collate utf8mb4_bin not null,
    alive_at datetime(6) not null
) engine = innodb
