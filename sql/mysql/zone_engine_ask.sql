-- zone_engine_ask: what the rows of buckets say to questions, for a process that decides by itself.
--
-- A read with a limit stands in a derived table: killed before its first row, any other finds nothing on MariaDB 11.8, without an error.
--
-- Arguments  p_questions  of each bucket that is asked about: [[zone, key, question, number, after, until], …]. total: what
--                         was spent in all before a time; reached: when a total was first reached, after a time and not
--                         after another; strikes: how many strikes there had been before a time; blocked: 1 where, from a
--                         time on, a check was blocked for some time by a version whose blocked rows are coalesced; open:
--                         1 where a version of the zone was ever open while the database did not answer. The number is
--                         the total; of times, microseconds since 1970
-- Result     one for each question, of one row, in their order: the answer, of times in microseconds; null where the rows
--            that could say it are not there. The last, whole, says that these are all
-- Locks      nothing
drop procedure if exists zone_engine_ask;
create procedure zone_engine_ask(in p_questions json)
sql security definer
begin
    declare v_epoch    datetime default timestamp'1970-01-01 00:00:00';
    declare v_found    boolean default true;
    declare v_zone_id  int;
    declare v_key      varbinary(255);
    declare v_question varchar(20) character set ascii;
    declare v_number   bigint;
    declare v_after_us bigint;
    declare v_until_us bigint;
    declare v_time     datetime(6);
    declare v_answer   bigint;
    declare c_question cursor for
        select j.zone_id, left(cast(j.key_text as binary), 255), j.question, j.number, j.after_us, j.until_us
        from json_table(p_questions, '$[*]' columns (
            place    for ordinality,
            zone_id  int path '$[0]',
            key_text varchar(255) character set utf8mb4 path '$[1]',
            question varchar(20) character set ascii path '$[2]',
            number   bigint path '$[3]',
            after_us bigint path '$[4]',
            until_us bigint path '$[5]'
        )) j
        order by j.place;
    declare continue handler for not found set v_found = false;
    open c_question;
    question: loop
        fetch c_question into v_zone_id, v_key, v_question, v_number, v_after_us, v_until_us;
        if not v_found then
            leave question;
        end if;
        set v_answer = null;
        if v_question <> 'reached' then
            set v_time = date_add(v_epoch, interval v_number microsecond);
        end if;
        case v_question
            when 'total' then
                select r.before_it
                into v_answer
                from (
                    select t.spent_total - t.spent as before_it
                    from zone_txn t force index (zone_txn_bucket_uq)
                    where t.zone_id = v_zone_id and t.bucket_key = v_key and t.created_at >= v_time and t.sealed
                    order by t.created_at, t.seq
                    limit 1
                ) r;
                if not v_found then
                    select d.spent_total
                    into v_answer
                    from zone_txn_dropped d
                    where d.zone_id = v_zone_id and d.bucket_key = v_key;
                end if;
            when 'reached' then
                call zone_total_reached(v_zone_id, v_key, v_number, v_after_us, v_until_us, v_answer);
                if v_answer is null then
                    -- A ledger that cannot say has lost rows of the window; a whole window from now is certainly enough.
                    call zone_clock(v_answer);
                end if;
            when 'strikes' then
                select r.strikes
                into v_answer
                from (
                    select t.strikes
                    from zone_txn t force index (zone_txn_bucket_uq)
                    where t.zone_id = v_zone_id and t.bucket_key = v_key and t.created_at < v_time and t.sealed
                    order by t.created_at desc, t.seq desc
                    limit 1
                ) r;
                if not v_found then
                    select d.strikes
                    into v_answer
                    from zone_txn_dropped d
                    where d.zone_id = v_zone_id and d.bucket_key = v_key;
                end if;
                set v_answer = coalesce(v_answer, 0);
            when 'blocked' then
                select r.one
                into v_answer
                from (
                    select 1 as one
                    from zone_txn t force index (zone_txn_bucket_uq)
                    straight_join zone_version v on v.zone_id = t.zone_id and v.version = t.zone_version
                    where t.zone_id = v_zone_id and t.bucket_key = v_key and t.created_at >= v_time
                        and t.kind in ('check', 'reserve') and t.blocked and t.retry_after_us is not null
                        and v.blocked_rows = 'coalesced' and t.sealed
                    order by t.created_at desc, t.seq desc
                    limit 1
                ) r;
            when 'open' then
                select max(1)
                into v_answer
                from zone_version v
                where v.zone_id = v_zone_id and v.on_outage = 'open';
        end case;
        select v_answer as answer;
        set v_found = true;
    end loop;
    close c_question;
    select true as whole;
end;
