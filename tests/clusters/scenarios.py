"""What is done to a cluster under load, each written once; the lists at the end say to which kinds.

A scenario raises an AssertionError where it did not hold.
"""

import json
import os
import subprocess
import time

from cluster import NODES, TALLYGATE, tallygate
from load import Load

SOAK = bool(os.environ.get("TALLYGATE_SOAK"))


def rounds(test, soak):
    return soak if SOAK else test


def answered_in_time(load):
    assert not load.errors, f"{len(load.errors)} checks got no decision, the first: {load.errors[0]}"
    assert load.longest_s <= load.deadline_s + 1, f"a check took {load.longest_s:.1f} s"


def by_one_list(cluster, count):
    return [cluster.url()] * count


def each_at_its_own(cluster, count):
    return [cluster.url([cluster.writers[n % len(cluster.writers)]]) for n in range(count)]


def at_one_node(cluster, count):
    return [cluster.url([1])] * count


def exactly(cluster, load, urls, at_once=1, answers=250):
    load.set_zone(cluster.url(), 100)
    with load.running(urls, keys=1, at_once=at_once):
        load.wait_for(rounds(answers, 10 * answers))
    answered_in_time(load)
    assert load.allowed == 100, f"{load.allowed} of 100 were allowed"


def same_list(cluster, load):
    """Sixteen processes with the same list of nodes, on one key: the limit exactly."""
    exactly(cluster, load, by_one_list(cluster, 16))


def own_node(cluster, load):
    """Sixteen processes on one key, each at a node of its own: the limit exactly, however many tries it takes."""
    exactly(cluster, load, each_at_its_own(cluster, 16))


def batches(cluster, load):
    """Nine processes on one key, each at a node of its own with four checks at once: nobody stands still behind a commit."""
    exactly(cluster, load, each_at_its_own(cluster, 9), at_once=4, answers=3_000)


def many_keys(cluster, load):
    """Many keys, each process at a node of its own."""
    load.set_zone(cluster.url(), 1_000)
    with load.running(each_at_its_own(cluster, 12), keys=rounds(300, 10_000)):
        load.wait_for(rounds(300, 20_000), patience_s=300)
    answered_in_time(load)


def policy_changes(cluster, load):
    """The policy changes by the list again and again, while processes decide at nodes of their own: none by an old one."""
    load.set_zone(cluster.url(), 1_000)
    with load.running(each_at_its_own(cluster, 6), keys=50):
        for turn in range(rounds(4, 40)):
            load.set_zone(cluster.url(), 1_001 + turn)
            time.sleep(0.3)
    answered_in_time(load)


def behind(cluster, load):
    """A node shows nothing of what it is sent for a while: who looks there waits, and who decides there is exact."""
    load.set_zone(cluster.url(), 100)
    # The node knows the zone before.
    tallygate(cluster.url([3]), "check", load.zone, "key 0", "--cost", 0)
    lag = cluster.lag(3, 4)
    time.sleep(1)
    with load.running([cluster.url([1])], keys=1):
        time.sleep(1)
    spent = load.allowed
    peek = json.loads(tallygate(cluster.url([3]), "check", load.zone, "key 0", "--cost", 0, "--format", "json"))
    rows = cluster.ledger(3, load.zone)
    lag.wait()
    assert peek["remaining"] == 100 - spent, f"a peek at node 3 says {peek['remaining']} of 100 after {spent} were spent at node 1"
    assert len(rows) == len(load.questions), f"{len(rows)} of {len(load.questions)} rows at node 3"


def policy_behind(cluster, load):
    """A policy is set while a node has much to apply before it: when that is acknowledged, the node decides by it."""
    load.set_zone(cluster.url(), 100)
    with load.running([cluster.url([3])] * 3, keys=3):
        with load.silence():
            cluster.burden()
            load.set_zone(cluster.url(), 90)
        load.wait_for(9)
    answered_in_time(load)


def hot_rates(cluster, load):
    """Decisions a second on one key: at a single node, by the list, and by each process at a node of its own."""
    load.set_zone(cluster.url(), 100_000_000)
    rates = {}
    for name, urls in ("single", at_one_node), ("list", by_one_list), ("own", each_at_its_own):
        part = Load(load.zone, load.deadline_s)
        with part.running(urls(cluster, 12), keys=1):
            time.sleep(rounds(4, 20))
        answered_in_time(part)
        load.questions += part.questions
        rates[name] = part.rate
    load.more = {f"{name}_per_s": round(rate) for name, rate in rates.items()}
    load.more |= {f"{name}_to_single": round(rates[name] / rates["single"], 2) for name in ("list", "own")}
    assert rates["list"] >= 0.5 * rates["single"], load.more


def come_back(cluster, load):
    """The first node catches up under load."""
    time.sleep(rounds(2, 20))
    with load.eased():
        cluster.become_ready(1)


def killed(cluster, load):
    """The node that all work with dies without a word, and comes back; the policy changes meanwhile."""
    load.set_zone(cluster.url(), 1_000_000)
    with load.running(by_one_list(cluster, 8), keys=rounds(500, 10_000)):
        time.sleep(2)
        cluster.node("kill", 1)
        time.sleep(rounds(2, 10) + cluster.stands_still_s)
        load.set_zone(cluster.url(), 900_000)
        cluster.node("join", 1)
        come_back(cluster, load)
        time.sleep(rounds(2, 20))
    answered_in_time(load)


def cut_off(cluster, load):
    """The node that all work with loses the other two, and finds them again."""
    load.set_zone(cluster.url(), 1_000_000)
    with load.running(by_one_list(cluster, 8), keys=rounds(500, 10_000)):
        time.sleep(2)
        cluster.node("cut", 1)
        time.sleep(rounds(3, 10) + cluster.stands_still_s)
        cluster.node("heal", 1)
        come_back(cluster, load)
        time.sleep(rounds(2, 20))
    answered_in_time(load)


def promoted(cluster, load):
    """The primary dies without a word while as many standbys as may be are behind; the most advanced one is promoted."""
    load.set_zone(cluster.url(), 1_000_000)
    with load.running(by_one_list(cluster, 8), keys=rounds(500, 10_000)):
        time.sleep(rounds(2, 10))
        for node in NODES[3 - cluster.may_lag:]:
            cluster.node("hold", node)
        time.sleep(1)
        cluster.node("kill", 1)
        load.nodes = [cluster.promote_the_most_advanced()]
        time.sleep(rounds(2, 10))
    answered_in_time(load)


def replica(cluster, load):
    """Reports are read at a standby, which says how far it is behind."""
    load.set_zone(cluster.url(), 1_000)
    with load.running([cluster.url()], keys=5):
        time.sleep(1)
    standby = cluster.url(NODES, "replica")
    cluster.wait("the standby", lambda: len(rows_at(standby, load.zone)) == len(load.questions))
    for node in NODES[1:]:
        cluster.node("pause", node)
    # Recorded, and not answered where the answer waits for a standby to apply it.
    check = [TALLYGATE, "check", load.zone, "key 0", "--deadline", "2s", "--database", cluster.url()]
    subprocess.run(check, capture_output=True)
    told = subprocess.run([TALLYGATE, "audit", "verify", "--database", standby], capture_output=True, text=True)
    for node in NODES[1:]:
        cluster.node("resume", node)
    assert told.returncode == 0 and "behind" in told.stderr, told
    load.more = {"told": told.stderr.strip()}


def rows_at(url, zone):
    return json.loads(tallygate(url, "history", "--zone", zone, "--limit", 10_000_000, "--format", "json"))


OF_WRITERS = (same_list, own_node, batches, many_keys, policy_changes, behind, policy_behind, hot_rates, killed, cut_off)
OF_A_PRIMARY = (same_list, many_keys, killed, cut_off)
OF_STANDBYS = (same_list, replica, promoted)
