"""Callers, each a process of its own, that ask one check after the other and write down what they are told."""

import json
import subprocess
import threading
import time
import uuid
from contextlib import contextmanager

from cluster import NODES, TALLYGATE, tallygate

HOUR_US = 3_600_000_000


class Load:
    def __init__(self, zone, deadline_s):
        self.zone, self.deadline_s = zone, deadline_s
        self.questions, self.errors, self.policies = [], [], []
        self.seconds = 0.0
        # Further lines to print, and the nodes that are judged.
        self.more, self.nodes = {}, NODES
        self.lock = threading.Lock()
        self.may_ask = threading.Event()
        self.may_ask.set()
        self.pause_s = 0.0

    def set_zone(self, url, rate):
        told = json.loads(tallygate(url, "zone", "set", self.zone, "--rate", rate, "--per", "1h", "--format", "json"))
        first = not self.policies
        self.policies.append({
            "zone": self.zone, "version": told["version"], "limit": rate, "window_us": HOUR_US,
            "acknowledged": None if first else time.time(),
        })

    @contextmanager
    def running(self, urls, keys, at_once=1):
        """A caller for each of the addresses, which asks so many checks at once, for as long as what is done meanwhile takes."""
        enough = threading.Event()
        callers = [threading.Thread(target=self.call, args=(n, url, keys, at_once, enough)) for n, url in enumerate(urls)]
        began = time.monotonic()
        for caller in callers:
            caller.start()
        try:
            self.wait_for(3 * len(urls))
            yield
        finally:
            enough.set()
            self.seconds += time.monotonic() - began
            for caller in callers:
                caller.join()

    @contextmanager
    def silence(self):
        """Callers that were answered ask nothing meanwhile."""
        self.may_ask.clear()
        try:
            yield
        finally:
            self.may_ask.set()

    @contextmanager
    def eased(self):
        """Callers rest between their checks meanwhile: a node that shares a machine with all others must catch up with them."""
        self.pause_s = 0.5
        try:
            yield
        finally:
            self.pause_s = 0.0

    def wait_for(self, answers, patience_s=60):
        """A machine that has much to do takes longer; nothing is shown by callers that have not begun."""
        until, before = time.monotonic() + patience_s, len(self.questions)
        while len(self.questions) < before + answers and time.monotonic() < until:
            time.sleep(0.05)

    def call(self, number, url, keys, at_once, enough):
        command = [TALLYGATE, "check", "--stdin", "--concurrency", at_once, "--deadline", f"{self.deadline_s}s", "--database", url]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(list(map(str, command)), text=True, **pipes) as program:
            turn = number
            while not enough.is_set():
                time.sleep(self.pause_s)
                self.may_ask.wait()
                key, asked = f"key {turn % keys}", time.time()
                questions = [{"zone": self.zone, "key": key, "txn": str(uuid.uuid4()), "cost": 1} for _ in range(at_once)]
                turn += 7
                try:
                    program.stdin.write("".join(json.dumps(question) + "\n" for question in questions))
                    program.stdin.flush()
                except BrokenPipeError:
                    pass
                for question in questions:
                    try:
                        answer = json.loads(program.stdout.readline())
                    except json.JSONDecodeError:
                        answer = {"error": f"the caller ended: {program.stderr.read().strip()}"}
                        enough.set()
                    error = answer.get("error")
                    with self.lock:
                        self.questions.append({**question, "asked": asked, "answered": time.time(), "answer": None if error else answer})
                        if error:
                            self.errors.append(error)

    @property
    def allowed(self):
        return sum(1 for question in self.questions if question["answer"] and not question["answer"]["blocked"])

    @property
    def longest_s(self):
        return max(question["answered"] - question["asked"] for question in self.questions)

    @property
    def rate(self):
        return sum(1 for question in self.questions if question["answer"]) / self.seconds

    def figures(self):
        if not self.questions:
            return self.more
        answered = sorted(question["answered"] for question in self.questions if question["answer"])
        still = max((after - before for before, after in zip(answered, answered[1:])), default=0.0)
        return {
            "asked": len(self.questions),
            "answered": len(answered),
            "allowed": self.allowed,
            "errors": len(self.errors),
            "still_s": round(still, 1),
            "longest_s": round(self.longest_s, 1),
            **self.more,
        }
