-- By which name this database is known where several decide together. Who calls it by another one would send it the
-- buckets of another.

create table tallygate_shard (
    one  boolean not null default true,
    name text    not null,
    constraint tallygate_shard_pk primary key (one),
    constraint tallygate_shard_one_ck check (one)
);
comment on table tallygate_shard is 'By which name this database is known among several; at most one row.';
comment on column tallygate_shard.one is 'always true';
comment on column tallygate_shard.name is 'its name, from which it follows which keys are its own';
