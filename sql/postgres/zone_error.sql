-- zone_error: raises an error of ours. Every message stands here.
--
-- Arguments  p_error   its name
--            p_values  what its message names
-- Result     none
-- Locks      nothing
-- Errors     TG001 to TG005 and TG008 to TG011, see docs/sql.md
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
        when 'part' then
            v_code := 'TG002';
            v_message := 'transaction %s was decided with other limits; ask for the same ones, or use a new id';
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
        when 'charge not reserved' then
            v_code := 'TG002';
            v_message := 'the transaction is no reservation; refund or release it';
        when 'charge of no slot' then
            v_code := 'TG002';
            v_message := 'the transaction holds no slot; refund, settle or cancel it';
        when 'charge over' then
            v_code := 'TG002';
            v_message := 'the transaction''s time is over; it has ended by itself';
        when 'no charge' then
            v_code := 'TG003';
            v_message := 'transaction %s was not decided in the bucket; look where it was';
        when 'no txn' then
            v_code := 'TG003';
            v_message := 'a row is recorded under a transaction; name it by a version 4 or 7 UUID';
        when 'kind' then
            v_code := 'TG003';
            v_message := 'nothing of the kind %s can be recorded; use %s';
        when 'same bucket' then
            v_code := 'TG003';
            v_message := 'the bucket %s of zone %s is named twice; name it once, with the sum of the costs';
        when 'cost of member' then
            v_code := 'TG003';
            v_message := 'cost %s is out of range; a zone that counts members takes 0 or 1';
        when 'no member' then
            v_code := 'TG003';
            v_message := 'the zone counts members; name the one that the check is about';
        when 'member' then
            v_code := 'TG003';
            v_message := '%s counts no members; leave the member out';
        when 'member bytes' then
            v_code := 'TG003';
            v_message := 'member of %s bytes cannot be used; a member is 1 to 255 bytes without control characters';
        when 'capacity' then
            v_code := 'TG003';
            v_message := 'the zone hands out capacity, and decides no checks; take a lease of it';
        when 'queue' then
            v_code := 'TG003';
            v_message := 'the zone is a queue, and decides no checks; offer an item to it';
        when 'ttl' then
            v_code := 'TG003';
            v_message := 'nothing can be reserved in a zone of %s; use a check';
        when 'time' then
            v_code := 'TG003';
            v_message := '%s of %s µs is out of range; use 1 µs to 10 years';
        when 'reserve' then
            v_code := 'TG003';
            v_message := 'a reservation of cost 0 reserves nothing; use 1 or more';
        when 'cost' then
            v_code := 'TG003';
            v_message := 'cost %s is out of range; use 0 to 1099511627776';
        when 'checks' then
            v_code := 'TG003';
            v_message := 'a row cannot stand for %s checks; use 1 to 2147483647';
        when 'flood' then
            v_code := 'TG003';
            v_message := 'no row can stand for %s checks: none was blocked here within a minute by a zone with coalesced rows; check each';
        when 'closed' then
            v_code := 'TG003';
            v_message := 'nothing can have passed unchecked in zone %s, which was never open; set it so: tallygate zone set --on-outage open';
        when 'arrays' then
            v_code := 'TG003';
            v_message := 'the arrays of %s checks differ in length, or do not begin at 1; give each check one element in all';
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
        when 'home' then
            v_code := 'TG011';
            v_message := 'the bucket belongs to %s; ask there';
        when 'algorithm' then
            v_code := 'TG008';
            v_message := '%s is no algorithm that these routines know; run: tallygate migrate';
    end case;
    raise exception using errcode = v_code, message = format(v_message, variadic p_values);
end
$$;
