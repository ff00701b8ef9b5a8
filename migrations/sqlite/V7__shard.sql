-- By which name this database is known where several decide together. Who calls it by another one would send it the
-- buckets of another.
create table tallygate_shard (
    one  integer not null default 1 constraint tallygate_shard_pk primary key, -- always 1
    name text    not null, -- its name, from which it follows which keys are its own
    constraint tallygate_shard_one_ck check (one = 1)
) strict, without rowid;
