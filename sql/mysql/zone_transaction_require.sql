-- zone_transaction_require: refuses when no transaction is open.
--
-- Neither server tells a routine whether it runs in a transaction, but setting the isolation level fails
-- with 1568 exactly when it does. With autocommit off every statement is in one.
--
-- Locks      nothing
-- Errors     TG006 (31006) no transaction is open
drop procedure if exists zone_transaction_require;
create procedure zone_transaction_require()
sql security definer
begin
    declare v_open boolean default not @@session.autocommit;
    declare continue handler for 1568 set v_open = true;
    -- A session that keeps no warning would keep from every handler that nothing was found.
    if @@session.max_error_count = 0 then
        set max_error_count = 64;
    end if;
    if not v_open then
        set transaction isolation level read committed;
        if not v_open then
            -- Uses up the isolation level that was set for the next transaction.
            start transaction;
            commit and no chain no release;
            call zone_error('no transaction', null, null, null);
        end if;
    end if;
end;
