-- The clock of a database of tests: a row that the owner sets. No other database has this table, nor gets it later.

create table if not exists tallygate_test_clock (
    one    boolean     not null default true comment 'always true',
    now_at datetime(6) null comment 'the time in UTC, which stands still; null for the clock of the server',
    constraint tallygate_test_clock_pk primary key (one),
    constraint tallygate_test_clock_one_ck check (one = true),
    constraint tallygate_test_clock_now_at_ck check (now_at between '1970-01-01 00:00:00' and '9999-01-01 00:00:00')
) comment = 'The clock of a database of tests; one row.';

insert into tallygate_test_clock (one) values (true) on duplicate key update one = true;

