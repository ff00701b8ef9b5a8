-- The clock of a database of tests: a row that the owner sets. No other database has this table, nor gets it later.

create table tallygate_test_clock (
    one    boolean     not null default true,
    now_at timestamptz null,
    constraint tallygate_test_clock_pk primary key (one),
    constraint tallygate_test_clock_one_ck check (one),
    constraint tallygate_test_clock_now_at_ck check (now_at between '1970-01-01 00:00:00+00' and '9999-01-01 00:00:00+00')
);
comment on table tallygate_test_clock is 'The clock of a database of tests; one row.';
comment on column tallygate_test_clock.one is 'always true';
comment on column tallygate_test_clock.now_at is 'the time, which stands still; null for the clock of the server';
insert into tallygate_test_clock (one) values (true);

