-- The seed's way of counting: a row to lock per bucket, and a count over the window.

create table seed_zone (
    id               int    primary key,
    description      text,
    rate             int    not null,
    "window"         bigint not null
);

create table seed_bucket_lock (
    bucket_key varchar(255) unique
);

create table seed_txn (
    id         bigint       generated always as identity primary key,
    zone_id    int,
    bucket_key varchar(255),
    blocked    smallint,
    created_at timestamptz  default clock_timestamp()
);

-- The seed names no index; without this one each check would read the whole table.
create index seed_txn_bucket on seed_txn (zone_id, bucket_key, created_at);

create function seed_check(p_zone_id int, p_bucket_key text)
returns table (blocked smallint, id bigint)
language plpgsql
as $$
declare
    v_rate   int;
    v_window bigint;
begin
    select z.rate, z."window" into v_rate, v_window from seed_zone z where z.id = p_zone_id;
    insert into seed_bucket_lock (bucket_key) values (p_bucket_key) on conflict do nothing;
    perform from seed_bucket_lock b where b.bucket_key = p_bucket_key for update;
    select (count(*) >= v_rate)::int
    into blocked
    from seed_txn t
    where t.zone_id = p_zone_id and t.bucket_key = p_bucket_key and t.blocked = 0
        and t.created_at >= clock_timestamp() - v_window * interval '1 second';
    insert into seed_txn (zone_id, bucket_key, blocked)
    values (p_zone_id, p_bucket_key, blocked)
    returning seed_txn.id into id;
    return next;
end
$$;
