"""Makes the pages that are looked at, by the command, of ledgers that are made up.

The clock is that of faketime, so that a month passes in seconds, and the same one each time.
"""

import datetime
import json
import os
import random
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMAND = os.environ.get("TALLYGATE", str(ROOT / "target/debug/tallygate"))
ATTEMPTS = ROOT / "tests/data/ssh_logins.csv"

BEGAN = datetime.datetime(2026, 10, 1)
MADE = BEGAN + datetime.timedelta(days=30, hours=14, minutes=5)

# Markup, what turns the direction of writing or is not seen, formulas, and keys that are as long as keys may be.
FORGED = [
    "<script>alert(1)</script>",
    "user:admin\u202egnp.exe\u202c",
    "us\u200ber:root\ufeff",
    '"><img src=x onerror=alert(1)>',
    "</title></style><h1>gone</h1>",
    "=HYPERLINK(\"http://evil.example\";\"look\")",
    "\u2066\u05d0\u05d1\u05d2\u2069",
    "עברית:42",
    "日本語のキーはここで折り返す",
    "k" * 255,
    "tenant:" + "/".join(["region-eu-central-1"] * 12),
    "&amp;&lt;b&gt;",
]


class Ledger:
    """A database of SQLite, written by the command at whatever time it is said to be."""

    def __init__(self, folder, name):
        self.folder, self.url, self.at = folder, f"sqlite:{name}.db", BEGAN

    def run(self, *args, lines=None, codes=(0, 1)):
        command = ["faketime", f"{self.at:%Y-%m-%d %H:%M:%S}", COMMAND, *args]
        environment = {
            **os.environ, "TALLYGATE_DATABASE_URL": self.url, "USER": "erin", "TZ": "UTC",
        }
        ran = subprocess.run(command, cwd=self.folder, env=environment, input=lines, capture_output=True, text=True)
        if ran.returncode not in codes:
            raise SystemExit(f"{' '.join(args)}: {ran.returncode}\n{ran.stderr}{ran.stdout[-2000:]}")
        return ran.stdout

    def checks(self, checks):
        """Decides (zone, key, cost) one after the other, and gives the decisions."""
        lines = [json.dumps({"zone": zone, "key": key, "cost": cost}) + "\n" for zone, key, cost in checks]
        told = self.run("check", "--stdin", "--concurrency", "1", lines="".join(lines), codes=(0, 1, 2))
        return [json.loads(line) for line in told.splitlines()]


def rich(folder):
    """A month of several zones, with attacks, people who act, and whatever strangers type. Two more before it."""
    random.seed(17)
    ledger = Ledger(folder, "rich")
    ledger.at = BEGAN - datetime.timedelta(days=35)
    zone = lambda name, *args: ledger.run("zone", "set", name, *args)
    zone("login", "--rate", "5", "--per", "60s", "--ban-after", "4", "--ban-within", "10m", "--ban-for", "15m",
         "--ban-factor", "2", "--ban-max", "4h", "--description", "Attempts of a user to log in")
    zone("payments", "--rate", "50000", "--per", "24h", "--description", "Cents of a card in a day")
    zone("search-by-address", "--rate", "20", "--per", "10s", "--algorithm", "token-bucket", "--mode", "shadow")
    zone("signups", "--rate", "3", "--per", "1h", "--soft-rate", "2")
    for unused in ("api", "exports", "reports"):
        zone(unused, "--rate", "10", "--per", "1s")
    for day in range(-30, 31):
        for hour in (9, 21):
            ledger.at = BEGAN + datetime.timedelta(days=day, hours=hour, minutes=random.randrange(60))
            if ledger.at >= MADE or day < 0 and (day % 3 or hour == 21):
                continue
            busy = 1 if day % 7 in (2, 3) else 3
            checks = [("login", f"user:{random.randrange(60)}", 1) for _ in range(6 * busy)]
            checks += [("payments", f"card:{random.randrange(4000, 4012)}", random.choice([900, 2500, 12000])) for _ in range(3 * busy)]
            checks += [("search-by-address", f"198.51.100.{random.randrange(8)}", 1) for _ in range(3 * busy)]
            if day in (4, 11, 12, 13, 25):
                checks += [("login", "203.0.113.66", 1)] * 30 + [("login", f"203.0.113.{day}", 1)] * 12
            if day == 18:
                checks += [("search-by-address", "198.51.100.77", 1)] * 40
            if day in (8, 9) and hour == 9:
                checks += [("signups", key, 1) for key in FORGED for _ in range(4)]
                checks += [("payments", "card:9f3c", 9000)] * 7
            decisions = ledger.checks(checks)
            if day == 9 and hour == 9:
                paid = next(decision for decision in decisions if decision["zone"] == "payments" and not decision["blocked"])
                ledger.run("refund", paid["txn_id"])
        if day == 12:
            ledger.run("ban", "login", "203.0.113.66", "--for", "7d", "--by", "dora", "--note", "Scans us each week; see ticket SEC-1182")
            ledger.run("ban", "signups", FORGED[0], "--for", "1h", "--by", "dora", "--note", "</td><img src=x>\u202edecived")
            ledger.run("unban", "signups", FORGED[0], "--by", "dora", "--note", "a mistake")
        if day == 15:
            zone("login", "--rate", "8", "--per", "60s", "--ban-after", "4", "--ban-within", "10m", "--ban-for", "15m",
                 "--ban-factor", "2", "--ban-max", "4h", "--by", "frank", "--description", "Attempts of a user to log in")
            ledger.run("override", "set", "payments", "card:4003", "--rate", "90000", "--per", "24h", "--by", "erin",
                       "--note", "Furnishes a new office until the end of the month")
    ledger.at = MADE
    return ledger


def sparse(folder):
    """Four seconds of one zone."""
    ledger = Ledger(folder, "sparse")
    ledger.run("zone", "set", "login", "--rate", "5", "--per", "60s")
    for n in range(4):
        ledger.at = BEGAN + datetime.timedelta(seconds=n)
        ledger.checks([("login", f"user:{key % 3}", 1) for key in range(4 + n)])
    ledger.at += datetime.timedelta(seconds=60)
    return ledger


def pages(folder):
    """Makes every page in the folder, and gives their names."""
    ledger = rich(folder)
    ledger.run("audit", "report", "--since", f"{BEGAN:%Y-%m-%dT%H:%M:%SZ}", "--html", "report.html")
    ledger.run("audit", "report", "--zone", "login", "--since", "36h", "--html", "report-hours.html")
    ledger.run("backtest", "--from-ledger", "login", "--rate", "3", "--per", "60s", "--html", "backtest-ledger.html")
    few = sparse(folder)
    few.run("audit", "report", "--html", "report-sparse.html")
    demo = Ledger(folder, "demo")
    demo.run("demo", "--database", demo.url)
    demo.at += datetime.timedelta(minutes=1)
    demo.run("audit", "report", "--html", "report-demo.html")
    empty = Ledger(folder, "empty")
    empty.run("migrate")
    empty.run("audit", "report", "--html", "report-empty.html")
    # A name that is markup, and turns the direction of writing.
    forged = "log\u202e<b>&.csv"
    (Path(folder) / forged).write_text(ATTEMPTS.read_text())
    played = lambda file, *args: few.run("backtest", str(file), "--key-column", "ip", *args)
    played(forged, "--rate", "3", "--per", "10m", "--html", "backtest.html")
    played(ATTEMPTS, "--policy", "rate=3,per=10m", "--policy", "rate=5,per=10m,ban-after=3,ban-within=10m,ban-for=1h",
           "--policy", "rate=10,per=10m,algorithm=token-bucket", "--html", "backtest-policies.html")
    played(ATTEMPTS, "--rate", "1", "--per", "10m", "--sweep", "rate=1..12", "--html", "backtest-sweep.html")
    few.run("simulate", "--rate", "5", "--per", "60s", "--html", "simulate.html")
    return sorted(path.name for path in Path(folder).glob("*.html"))
