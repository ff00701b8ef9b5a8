-- By which name this database is known where several decide together. Who calls it by another one would send it the
-- buckets of another.

create table if not exists tallygate_shard (
    one  boolean     not null default true comment 'always true',
    name varchar(63) character set ascii collate ascii_bin not null comment 'its name, from which it follows which keys are its own',
    constraint tallygate_shard_pk primary key (one),
    constraint tallygate_shard_one_ck check (one = true)
) comment = 'By which name this database is known among several; at most one row.';
