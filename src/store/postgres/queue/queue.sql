select i.waiting, i.away, i.settled_us, i.seq, i.txn_id, i.cost, i.band, i.offered_us, i.deadline_us, i.place, i.due_us, i.takes, i.is_last, i.receipt, i.payload
from zone_engine_queue($1, $2, $3, $4, $5, $6) i
