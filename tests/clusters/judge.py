"""Decides whether a ledger is what its callers were told, from the callers' logs and the rows alone.

It shares no code with Tallygate, and believes nothing that Tallygate says of itself. A *question* is a dictionary of what a
caller asked and was told: zone, key, txn, cost, asked (seconds), and answer, the decision, or None where there was none. A *ledger*
is the rows of one node, as `tallygate history --format json` prints them. A *policy* is a version of a zone: zone, version, limit,
window_us, and acknowledged (seconds), None for the first.
"""

from collections import defaultdict
from datetime import datetime, timedelta
from typing import NamedTuple


class Fault(NamedTuple):
    what: str  # over, lost, doubled, torn or stale
    where: str
    why: str


def judge(questions, ledgers, policies):
    """Every fault, those of each node by its name."""
    faults = []
    for node, rows in ledgers.items():
        faults += [fault._replace(where=f"{node}: {fault.where}") for fault in _of_node(questions, rows, policies)]
    faults += _between(ledgers)
    return faults


def _of_node(questions, rows, policies):
    buckets, by_txn = defaultdict(list), defaultdict(list)
    for row in rows:
        buckets[row["zone"], row["key"]].append(row)
        by_txn[row["zone"], row["key"], row["txn_id"]].append(row)
    for (zone, key, txn), found in by_txn.items():
        if len(found) > 1:
            yield Fault("doubled", f"{zone}/{key}", f"transaction {txn} has {len(found)} rows")
    for (zone, key), bucket in buckets.items():
        bucket.sort(key=lambda row: row["seq"])
        yield from _of_bucket(f"{zone}/{key}", bucket, [policy for policy in policies if policy["zone"] == zone])
    for question in questions:
        yield from _of_question(question, by_txn, policies)


def _of_bucket(where, rows, policies):
    seqs = [row["seq"] for row in rows]
    if seqs != list(range(1, len(rows) + 1)):
        gap = next((seq for seq, wanted in zip(seqs, range(1, len(rows) + 1)) if seq != wanted), seqs[-1])
        yield Fault("torn", where, f"its rows are not numbered one after the other at seq {gap}")
    limits = {policy["version"]: policy for policy in policies}
    passed = []
    for row in rows:
        policy = limits.get(row["zone_version"])
        if policy is None:
            yield Fault("torn", where, f"seq {row['seq']} was decided by version {row['zone_version']}, which there never was")
        if policy is None or row["blocked"]:
            continue
        at = _time(row)
        passed.append((at, row["cost"]))
        since = at - timedelta(microseconds=policy["window_us"])
        spent = sum(cost for when, cost in passed if when > since)
        if spent > policy["limit"]:
            yield Fault("over", where, f"{spent} of {policy['limit']} were admitted in the window that ends with seq {row['seq']}")


def _of_question(question, by_txn, policies):
    answer, where = question["answer"], f"{question['zone']}/{question['key']}"
    found = by_txn.get((question["zone"], question["key"], question["txn"]), [])
    if answer is not None and not found:
        yield Fault("lost", where, f"transaction {question['txn']} was answered, and has no row")
    for row in found:
        if answer is not None:
            other = [name for name in ("seq", "blocked", "zone_version", "decided_at") if row[name] != answer[name]]
            if other:
                yield Fault("torn", where, f"transaction {question['txn']} was answered otherwise than its row: {other}")
        for policy in policies:
            known = policy["acknowledged"] is not None and policy["acknowledged"] < question["asked"]
            if known and policy["zone"] == question["zone"] and row["zone_version"] < policy["version"]:
                why = f"seq {row['seq']} was decided by version {row['zone_version']} after {policy['version']} was in force"
                yield Fault("stale", where, why)


def _between(ledgers):
    """Nodes that hold different rows."""
    def known(row):
        return tuple(row[name] for name in ("zone", "key", "seq", "txn_id", "blocked", "zone_version", "decided_at"))

    nodes = {node: {known(row) for row in rows} for node, rows in ledgers.items()}
    (first, of_first), *others = nodes.items()
    for node, rows in others:
        for zone, key, seq, *_ in sorted(of_first ^ rows)[:10]:
            yield Fault("torn", f"{zone}/{key}", f"seq {seq} is not the same on {first} and {node}")


def _time(row):
    return datetime.fromisoformat(row["decided_at"].replace("Z", "+00:00"))
