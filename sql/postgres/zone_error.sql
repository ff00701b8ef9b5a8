-- zone_error: raises an error of ours. Every message stands here.
--
-- Arguments  p_error   its name
--            p_values  what its message names
-- Result     none
-- Locks      nothing
-- Errors     TG001 to TG005 and TG009 to TG012, see docs/sql.md
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
        when 'other member' then
            v_code := 'TG002';
            v_message := 'transaction %s was decided about another member; use a new id';
        when 'other end' then
            v_code := 'TG002';
            v_message := 'transaction %s was already ended by a %s of %s, so no %s of %s can end it';
        when 'charge blocked' then
            v_code := 'TG002';
            v_message := 'the transaction was blocked; there is nothing to give back';
        when 'charge of nothing' then
            v_code := 'TG002';
            v_message := 'the transaction spent nothing; there is nothing to give back';
        when 'charge reserved' then
            v_code := 'TG002';
            v_message := 'the transaction is a reservation; settle or cancel it';
        when 'taken' then
            v_code := 'TG002';
            v_message := 'the transaction is what a process took for local decisions; the process gives back what it did not spend';
        when 'charge of slot' then
            v_code := 'TG002';
            v_message := 'the transaction holds a slot; release it';
        when 'no charge' then
            v_code := 'TG003';
            v_message := 'transaction %s was not decided in the bucket; look where it was';
        when 'no txn' then
            v_code := 'TG003';
            v_message := 'a row is recorded under a transaction; name it by a version 4 or 7 UUID';
        when 'cost' then
            v_code := 'TG003';
            v_message := 'cost %s is out of range; use 0 to 1099511627776';
        when 'closed' then
            v_code := 'TG003';
            v_message := 'nothing can have passed unchecked in zone %s, which was never open; set it so: tallygate zone set --on-outage open';
        when 'nil txn' then
            v_code := 'TG003';
            v_message := 'the nil UUID names no transaction; use a version 4 or 7 UUID';
        when 'key' then
            v_code := 'TG003';
            v_message := 'bucket key of %s bytes cannot be used; a key is 1 to 255 bytes without control characters';
        when 'erased' then
            v_code := 'TG003';
            v_message := 'a bucket key cannot begin with erased:, which stands for keys that were erased; use another key';
        when 'total' then
            v_code := 'TG004';
            v_message := 'the bucket has spent %s in all and cannot count %s more';
        when 'ledger' then
            v_code := 'TG005';
            v_message := 'the ledger of a bucket in zone %s lacks rows of its window; it was changed from outside';
        when 'head' then
            v_code := 'TG005';
            v_message := '"seq", "spent_total", "level" or "strikes" of a bucket in zone %s is out of range; it was changed from outside';
        when 'append' then
            v_code := 'TG003';
            v_message := 'a row of zone %s with number %s does not follow from what is there; it was not appended';
        when 'heads' then
            v_code := 'TG003';
            v_message := '%s heads are not those of as many different buckets with a row each; nothing was appended';
        when 'stale' then
            v_code := 'TG009';
            v_message := 'the policy or the time is another one, and nothing was appended; decide again';
        when 'moved' then
            v_code := 'TG010';
            v_message := 'something else happened meanwhile, and nothing was appended; decide again';
        when 'elsewhere' then
            v_code := 'TG011';
            v_message := 'the bucket was moved to %s; ask there';
        when 'apart' then
            v_code := 'TG003';
            v_message := 'one of several databases makes no zone alone; use a zone that is set in all of them';
        when 'beyond' then
            v_code := 'TG012';
            v_message := 'zone %s is not plain (%s), and SQL decides plain zones only; use the library, or POST /v1/check';
        when 'home' then
            v_code := 'TG011';
            v_message := 'the bucket belongs to %s; ask there';
    end case;
    raise exception using errcode = v_code, message = format(v_message, variadic p_values);
end
$$;
