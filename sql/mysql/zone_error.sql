-- zone_error: raises an error of ours; not called from outside. Every message stands here.
--
-- Arguments  p_error   its name
--            p_first   what its message names first; a transaction in 32 hex digits
--            p_second  what it names second
--            p_third   what it names third
-- Locks      nothing
-- Errors     TG001 to TG007 and TG009 to TG012 (31001 to 31012), see docs/sql.md; the server's own 1317, where it raised none
drop procedure if exists zone_error;
create procedure zone_error(
    in p_error  varchar(20) character set utf8mb4,
    in p_first  longtext character set utf8mb4,
    in p_second longtext character set utf8mb4,
    in p_third  longtext character set utf8mb4
)
sql security definer
begin
    declare v_number  int;
    declare v_first   varchar(64) character set utf8mb4 default case
        when p_first is null then 'null'
        when char_length(p_first) > 64 then concat(left(p_first, 63), '…')
        else p_first
    end;
    declare v_message longtext character set utf8mb4;
    if p_error in ('other cost', 'other member', 'other end', 'no charge') then
        set v_first = lower(concat_ws(
            '-', substring(p_first, 1, 8), substring(p_first, 9, 4), substring(p_first, 13, 4),
            substring(p_first, 17, 4), substring(p_first, 21)
        ));
    end if;
    case p_error
        when 'no zone' then
            set v_number = 31001;
            set v_message = concat('there is no zone ', v_first, '; list them with: tallygate zone list');
        when 'other cost' then
            set v_number = 31002;
            set v_message = concat(
                'transaction ', v_first, ' was decided with cost ', p_second, ', not ', p_third, '; use a new id'
            );
        when 'other member' then
            set v_number = 31002;
            set v_message = concat('transaction ', v_first, ' was decided about another member; use a new id');
        when 'other end' then
            set v_number = 31002;
            set v_message = concat('transaction ', v_first, ' was already ended by a ', p_second, ' of ', p_third);
        when 'charge blocked' then
            set v_number = 31002;
            set v_message = 'the transaction was blocked; there is nothing to give back';
        when 'charge of nothing' then
            set v_number = 31002;
            set v_message = 'the transaction spent nothing; there is nothing to give back';
        when 'charge reserved' then
            set v_number = 31002;
            set v_message = 'the transaction is a reservation; settle or cancel it';
        when 'taken' then
            set v_number = 31002;
            set v_message = 'the transaction is what a process took for local decisions; the process gives back what it did not spend';
        when 'charge of slot' then
            set v_number = 31002;
            set v_message = 'the transaction holds a slot; release it';
        when 'no charge' then
            set v_number = 31003;
            set v_message = concat('transaction ', v_first, ' was not decided in the bucket; look where it was');
        when 'closed' then
            set v_number = 31003;
            set v_message = concat(
                'nothing can have passed unchecked in zone ', v_first,
                ', which was never open; set it so: tallygate zone set --on-outage open'
            );
        when 'no txn' then
            set v_number = 31003;
            set v_message = 'a row is recorded under a transaction; name it by a version 4 or 7 UUID';
        when 'insert id' then
            set v_number = 31003;
            set v_message = concat('the session has set insert_id to ', v_first, ', and rows are numbered in order; connect anew');
        when 'txn bytes' then
            set v_number = 31003;
            set v_message = concat(
                'a transaction is named by 16 bytes, not ', v_first, '; give those of a UUID: unhex(replace(uuid, ''-'', ''''))'
            );
        when 'nil txn' then
            set v_number = 31003;
            set v_message = 'the nil UUID names no transaction; use a version 4 or 7 UUID';
        when 'cost' then
            set v_number = 31003;
            set v_message = concat('cost ', v_first, ' is out of range; use 0 to 1099511627776');
        when 'key' then
            set v_number = 31003;
            set v_message = concat(
                'bucket key of ', v_first, ' bytes cannot be used; a key is 1 to 255 bytes without control characters'
            );
        when 'erased' then
            set v_number = 31003;
            set v_message =
                'a bucket key cannot begin with erased:, which stands for keys that were erased; use another key';
        when 'tokens' then
            set v_number = 31003;
            set v_message = concat(
                v_first, ' tokens a second for ', p_second,
                ' seconds cannot be counted; use 1 to 2147483647 tokens in all'
            );
        when 'total' then
            set v_number = 31004;
            set v_message = concat('the bucket has spent ', v_first, ' in all and cannot count ', p_second, ' more');
        when 'ledger' then
            set v_number = 31005;
            set v_message = concat(
                'the ledger of a bucket in zone ', v_first, ' lacks rows of its window; it was changed from outside'
            );
        when 'head' then
            set v_number = 31005;
            set v_message = concat(
                '"seq", "spent_total", "level" or "strikes" of a bucket in zone ', v_first, ' is out of range; it was changed from outside'
            );
        when 'no transaction' then
            set v_number = 31006;
            set v_message =
                'the routine joins a transaction and none is open; begin one, or call the routine without _in';
        when 'old snapshot' then
            set v_number = 31007;
            set v_message =
                'the bucket changed after the transaction began to read; run it again, or under READ COMMITTED';
        when 'append' then
            set v_number = 31003;
            set v_message = concat(
                'a row of zone ', v_first, ' with number ', coalesce(p_second, 'null'),
                ' does not follow from what is there; it was not appended'
            );
        when 'heads' then
            set v_number = 31003;
            set v_message = concat(
                v_first, ' heads are not those of as many different buckets with a row each; nothing was appended'
            );
        when 'stale' then
            set v_number = 31009;
            set v_message = 'the policy or the time is another one, and nothing was appended; decide again';
        when 'moved' then
            set v_number = 31010;
            set v_message = 'something else happened meanwhile, and nothing was appended; decide again';
        when 'elsewhere' then
            set v_number = 31011;
            set v_message = concat('the bucket was moved to ', v_first, '; ask there');
        when 'apart' then
            set v_number = 31003;
            set v_message = 'one of several databases makes no zone alone; use a zone that is set in all of them';
        when 'beyond' then
            set v_number = 31012;
            set v_message = concat(
                'zone ', v_first, ' is not plain (', p_second, '), and SQL decides plain zones only; use the library, or POST /v1/check'
            );
        when 'home' then
            set v_number = 31011;
            set v_message = concat('the bucket belongs to ', v_first, '; ask there');
    end case;
    -- The longest that a signal can carry.
    set v_message = left(v_message, 128);
    case v_number
        when 1317 then
            signal sqlstate '70100' set mysql_errno = 1317, message_text = v_message;
        when 31001 then
            signal sqlstate 'TG001' set mysql_errno = 31001, message_text = v_message;
        when 31002 then
            signal sqlstate 'TG002' set mysql_errno = 31002, message_text = v_message;
        when 31003 then
            signal sqlstate 'TG003' set mysql_errno = 31003, message_text = v_message;
        when 31004 then
            signal sqlstate 'TG004' set mysql_errno = 31004, message_text = v_message;
        when 31005 then
            signal sqlstate 'TG005' set mysql_errno = 31005, message_text = v_message;
        when 31006 then
            signal sqlstate 'TG006' set mysql_errno = 31006, message_text = v_message;
        when 31007 then
            signal sqlstate 'TG007' set mysql_errno = 31007, message_text = v_message;
        when 31009 then
            signal sqlstate 'TG009' set mysql_errno = 31009, message_text = v_message;
        when 31010 then
            signal sqlstate 'TG010' set mysql_errno = 31010, message_text = v_message;
        when 31011 then
            signal sqlstate 'TG011' set mysql_errno = 31011, message_text = v_message;
        when 31012 then
            signal sqlstate 'TG012' set mysql_errno = 31012, message_text = v_message;
    end case;
end;
