"""The judge finds each fault that is put in on purpose, and none where there is none."""

import copy
import unittest
from datetime import datetime, timedelta, timezone

from judge import judge

BEGAN = datetime(2026, 1, 1, tzinfo=timezone.utc)


def history():
    """Four checks of a bucket, under two versions of a policy that admits three an hour."""
    policies = [
        {"zone": "z", "version": 1, "limit": 3, "window_us": 3_600_000_000, "acknowledged": None},
        {"zone": "z", "version": 2, "limit": 3, "window_us": 3_600_000_000, "acknowledged": 2.5},
    ]
    questions, rows = [], []
    for n in range(4):
        decision = {
            "seq": n + 1,
            "blocked": n == 3,
            "zone_version": 1 if n < 3 else 2,
            "decided_at": (BEGAN + timedelta(seconds=n)).isoformat(),
        }
        questions.append({"zone": "z", "key": "k", "txn": f"t{n}", "cost": 1, "asked": float(n), "answer": decision})
        rows.append({**decision, "zone": "z", "key": "k", "txn_id": f"t{n}", "cost": 1})
    return questions, {"one": rows, "two": copy.deepcopy(rows)}, policies


class TheJudge(unittest.TestCase):
    def found(self, change):
        questions, ledgers, policies = history()
        change(questions, ledgers)
        return {fault.what for fault in judge(questions, ledgers, policies)}

    def test_a_history_without_a_fault_passes(self):
        self.assertEqual(self.found(lambda questions, ledgers: None), set())

    def test_an_unanswered_question_may_have_a_row_or_none(self):
        self.assertEqual(self.found(lambda questions, ledgers: questions[1].update(answer=None)), set())
        more = {"zone": "z", "key": "k", "txn": "t9", "cost": 1, "asked": 9.0, "answer": None}
        self.assertEqual(self.found(lambda questions, ledgers: questions.append(more)), set())

    def test_over_admission_is_found(self):
        def change(questions, ledgers):
            questions[3]["answer"]["blocked"] = False
            for rows in ledgers.values():
                rows[3]["blocked"] = False

        self.assertEqual(self.found(change), {"over"})

    def test_a_lost_decision_is_found(self):
        def change(_, ledgers):
            for rows in ledgers.values():
                rows.pop()

        self.assertEqual(self.found(change), {"lost"})

    def test_a_doubled_decision_is_found(self):
        def change(_, ledgers):
            for rows in ledgers.values():
                again = {**rows[3], "seq": 5}
                rows.append(again)

        self.assertEqual(self.found(change), {"doubled", "torn"})

    def test_a_torn_chain_and_an_answer_that_is_not_its_row_are_found(self):
        def gap(_, ledgers):
            for rows in ledgers.values():
                rows[3]["seq"] = 7

        def answer(questions, _):
            questions[0]["answer"]["blocked"] = True

        def node(_, ledgers):
            ledgers["two"][2]["decided_at"] = ledgers["two"][1]["decided_at"]

        def version(questions, ledgers):
            questions[3]["answer"]["zone_version"] = 9
            for rows in ledgers.values():
                rows[3]["zone_version"] = 9

        for change in gap, answer, node, version:
            with self.subTest(change.__name__):
                self.assertEqual(self.found(change), {"torn"})

    def test_a_stale_policy_is_found(self):
        def change(questions, ledgers):
            questions[3]["answer"]["zone_version"] = 1
            for rows in ledgers.values():
                rows[3]["zone_version"] = 1

        self.assertEqual(self.found(change), {"stale"})


if __name__ == "__main__":
    unittest.main()
