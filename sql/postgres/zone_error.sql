-- zone_error: raises an error of ours. Every message stands here.
--
-- Arguments  p_error   its name
--            p_values  what its message names
-- Result     none
-- Locks      nothing
-- Errors     TG001 to TG005, see zone_check
create function zone_error(p_error text, variadic p_values text[] default '{}')
returns void
language plpgsql
as $$
declare
    v_code    text;
    v_message text;
begin
    case p_error
        when 'no zone' then
            v_code := 'TG001';
            v_message := 'there is no zone %s; list them with: tallygate zone list';
        when 'other cost' then
            v_code := 'TG002';
            v_message := 'transaction %s was decided with cost %s, not %s; use a new id';
        when 'cost' then
            v_code := 'TG003';
            v_message := 'cost %s is out of range; use 0 to 1099511627776';
        when 'checks' then
            v_code := 'TG003';
            v_message := 'a row cannot stand for %s checks; use 1 to 2147483647';
        when 'arrays' then
            v_code := 'TG003';
            v_message := 'the arrays of %s checks differ in length, or do not begin at 1; give each check one element in all';
        when 'nil txn' then
            v_code := 'TG003';
            v_message := 'the nil UUID names no transaction; use a version 4 or 7 UUID';
        when 'key' then
            v_code := 'TG003';
            v_message := 'bucket key of %s bytes cannot be used; a key is 1 to 255 bytes without control characters';
        when 'total' then
            v_code := 'TG004';
            v_message := 'the bucket has spent %s in all and cannot count %s more';
        when 'ledger' then
            v_code := 'TG005';
            v_message := 'the ledger of a bucket in zone %s lacks rows of its window; it was changed from outside';
    end case;
    raise exception using errcode = v_code, message = format(v_message, variadic p_values);
end
$$;
