-- zone_batch_open: makes the temporary tables of a batch; not called from outside.
--
-- A session may do what it likes to the temporary tables that it has, whatever its rights. So what it has under these
-- names, made by its user or left by a call that was killed, is not believed, and nothing is kept until the next call.
--
-- Locks      nothing
drop procedure if exists zone_batch_open;
create procedure zone_batch_open()
sql security definer
begin
    declare v_heap_size bigint unsigned default @@session.max_heap_table_size;
    -- In memory, where a row is as long as its longest key: room for half a million checks.
    declare exit handler for sqlexception
    begin
        set max_heap_table_size = v_heap_size;
        resignal;
    end;
    call zone_batch_close();
    set max_heap_table_size = 268435456;
    create temporary table zone_batch_check (
        position   int not null primary key,
        bucket     int not null,
        nth        int not null,
        nth_of_txn int not null,
        appends    boolean not null,
        recorded   boolean not null,
        zone_id    int,
        bucket_key varbinary(255) not null,
        key_bytes  int not null,
        txn_id     binary(16),
        txn_bytes  int,
        cost       bigint,
        critical   boolean not null,
        member     varbinary(255),
        ttl_us     bigint,
        refused    boolean not null default false,
        index zone_batch_check_nth (bucket, nth)
    ) engine = memory;
    create temporary table zone_batch_head (
        bucket       int not null primary key,
        checks       int not null,
        zone_id      int,
        bucket_key   varbinary(255) not null,
        seq          bigint not null,
        last_at      datetime(6),
        spent_total  bigint not null,
        level        bigint,
        zone_version int,
        strikes      bigint,
        banned_until datetime(6),
        carried_at   datetime(6),
        plain        boolean not null,
        row_hash     binary(32)
    ) engine = memory;
    create temporary table zone_batch_special (
        bucket int not null primary key
    ) engine = memory;
    create temporary table zone_batch_bucket (
        bucket       int not null primary key,
        checks       int not null,
        zone_id      int not null,
        bucket_key   varbinary(255) not null,
        seq          bigint not null,
        last_at      datetime(6),
        spent_total  bigint not null,
        level        bigint,
        strikes      bigint not null,
        zone_version int not null,
        zone_limit   bigint not null,
        window_us    bigint not null,
        per_us       bigint,
        per_token    bigint,
        now_at       datetime(6) not null,
        start_at     datetime(6),
        room         bigint,
        plain        boolean not null,
        row_hash     binary(32)
    ) engine = memory;
    create temporary table zone_batch_state (
        position int not null primary key,
        room     bigint,
        seq      bigint not null
    ) engine = memory;
    create temporary table zone_batch_hash (
        position int not null primary key,
        bucket   int not null,
        seq      bigint not null,
        row_hash binary(32) not null,
        index zone_batch_hash_seq (bucket, seq)
    ) engine = memory;
    create temporary table zone_batch_wait (
        bucket     int not null,
        must_leave bigint not null,
        zone_id    int not null,
        bucket_key varbinary(255) not null,
        start_at   datetime(6) not null,
        wait_us    bigint,
        primary key (bucket, must_leave)
    ) engine = memory;
    create temporary table zone_batch_past (
        position       int not null primary key,
        id             bigint,
        zone_version   int,
        seq            bigint,
        blocked        boolean,
        reason         varchar(20) character set ascii,
        cost           bigint,
        zone_limit     bigint,
        remaining      bigint,
        retry_after_us bigint,
        delay_us       bigint,
        ends_at        datetime(6),
        created_at     datetime(6),
        other_member   boolean
    ) engine = memory;
    create temporary table zone_decision (
        position       int not null primary key,
        id             bigint,
        txn_id         binary(16),
        zone_id        int,
        zone_version   int,
        bucket_key     varbinary(255),
        seq            bigint,
        blocked        boolean,
        reason         varchar(20) character set ascii,
        cost           bigint,
        zone_limit     bigint,
        remaining      bigint,
        retry_after_us bigint,
        delay_us       bigint,
        ends_at        datetime(6),
        created_at     datetime(6),
        replayed       boolean,
        bucket         int,
        appends        boolean,
        critical       boolean,
        first_of_txn   boolean,
        is_last        boolean,
        spent          bigint,
        spent_total    bigint unsigned,
        level          bigint,
        strikes        bigint,
        prev_at        datetime(6),
        start_at       datetime(6),
        must_leave     bigint,
        head_seq       bigint,
        head_at        datetime(6),
        head_version   int,
        index zone_decision_txn (bucket, txn_id),
        index zone_decision_seq (bucket, head_seq)
    ) engine = memory;
    set max_heap_table_size = v_heap_size;
end;
