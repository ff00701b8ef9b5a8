"""Three servers of the same data in a container of their own, which is removed at the end."""

import json
import os
import subprocess
import time
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[2]
TALLYGATE = os.environ.get("TALLYGATE", str(ROOT / "target/debug/tallygate"))
PASSWORD = "tally'gate"
NODES = (1, 2, 3)
PATIENCE_S = 300


class Broken(AssertionError):
    """What was needed to play a scenario did not work."""


def done(*command):
    ended = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=180)
    if ended.returncode != 0:
        told = (ended.stderr.strip() or ended.stdout.strip())[-2000:]
        raise Broken(f"{' '.join(map(str, command[1:6]))} ended with {ended.returncode}: {told}")
    return ended.stdout


def tallygate(url, *arguments):
    return done(TALLYGATE, *arguments, "--database", url)


class Cluster:
    """What all kinds have in common; `node`, in each image, knows how a server of it is started, broken and asked."""

    name = image = scheme = user = ready = password_in = client = None
    first_port = 3300
    settings = {}
    # The longest that a check may take: longer than the servers stand still when one of them is gone.
    deadline_s = 5
    # The time that the servers stand still when one of them is gone.
    stands_still_s = 3
    # Whether nothing that was acknowledged may be lost.
    keeps_all = True

    def __enter__(self):
        image = os.environ.get(f"TALLYGATE_TEST_{self.image.upper()}_IMAGE", f"tallygate-test/{self.image}:1")
        label = f"tallygate-test-run={os.environ.get('TALLYGATE_TEST_RUN', 'by-hand')}"
        settings = {self.password_in: PASSWORD, **self.settings}
        given = [part for name, value in settings.items() for part in ("--env", f"{name}={value}")]
        self.container = done("docker", "run", "--detach", "--init", "--cap-add", "NET_ADMIN", "--label", label, *given, image).strip()
        try:
            self.wait("the cluster to start", self.is_there)
            address = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
            self.address = done("docker", "inspect", "--format", address, self.container).strip()
            self.make_database()
        except BaseException:
            self.__exit__()
            raise
        return self

    def is_there(self):
        told = done("docker", "logs", self.container)
        if done("docker", "inspect", "--format", "{{.State.Running}}", self.container).strip() != "true":
            raise Broken(f"the cluster ended: {told[-2000:]}")
        return "the cluster is there" in told

    def __exit__(self, *_):
        done("docker", "rm", "--force", "--volumes", self.container)

    def wait(self, what, holds):
        until = time.monotonic() + PATIENCE_S
        while not holds():
            if time.monotonic() > until:
                logs = done("docker", "exec", self.container, "sh", "-c", "tail -n 15 /var/log/node*")
                raise Broken(f"waited {PATIENCE_S} s for {what}; the servers' logs end with\n{logs}")
            time.sleep(0.2)

    def node(self, *command):
        return done("docker", "exec", self.container, "node", *command).strip()

    def url(self, nodes=NODES, target=None):
        hosts = ",".join(f"{self.address}:{self.first_port + node}" for node in nodes)
        wanted = f"?target={target}" if target else ""
        return f"{self.scheme}://{self.user}:{quote(PASSWORD)}@{hosts}/tally{wanted}"

    def is_ready(self, node):
        state = subprocess.run(["docker", "exec", self.container, "node", "state", str(node)], capture_output=True, text=True)
        return state.stdout.strip().startswith(self.ready)

    def become_ready(self, node):
        self.wait(f"node {node}", lambda: self.is_ready(node))

    def lag(self, node, seconds):
        """A process that keeps a node from showing what it is sent, for so long."""
        return subprocess.Popen(["docker", "exec", self.container, "node", "lag", str(node), str(seconds)], stdout=subprocess.DEVNULL)

    def sql(self, text):
        done("docker", "exec", self.container, *self.client, text)

    def make_database(self):
        self.sql("create database tally")

    def burden(self):
        """Gives the other nodes much to apply, before whatever is written next."""
        self.sql("create database if not exists burden; create table if not exists burden.rows (id int primary key auto_increment)")
        self.sql("insert into burden.rows select null from information_schema.columns a, information_schema.columns b limit 100000")

    def ledger(self, node, zone):
        return json.loads(tallygate(self.url([node]), "history", "--zone", zone, "--limit", 10_000_000, "--format", "json"))


class Galera(Cluster):
    name, image, scheme, user, ready, password_in = "galera", "galera", "mariadb", "root", "Synced", "MARIADB_ROOT_PASSWORD"
    client = ("mariadb", "--socket=/run/mysqld/1.sock", "--execute")
    # While a node joins, the others were seen to stand still for 8 seconds on a machine with much to do.
    deadline_s = 10
    writers = NODES


class Group(Cluster):
    image, scheme, user, ready, password_in = "group", "mysql", "root", "ONLINE", "MYSQL_ROOT_PASSWORD"
    client = ("mysql", "--socket=/run/mysqld/1.sock", "--user=root", "--execute")
    # A server is suspected after 5 seconds, whatever is set, and then expelled.
    deadline_s, stands_still_s = 20, 10

    def __init__(self, mode):
        self.name, self.settings = f"group-{mode}", {"GROUP_MODE": mode}
        self.writers = NODES if mode == "multi" else NODES[:1]


class Standbys(Cluster):
    image, scheme, user, ready, password_in = "standbys", "postgres", "postgres", "standby", "POSTGRES_PASSWORD"
    client = ("psql", "--host=/run/postgresql", "--port=5501", "--username=postgres", "--command")
    first_port = 5500
    # The program that promotes says how long they have no primary.
    deadline_s = 20
    writers = NODES[:1]

    def __init__(self, commit, who=""):
        self.name = "-".join(["standbys", commit, *who.lower().split()])
        self.settings = {"SYNCHRONOUS_COMMIT": commit, "SYNCHRONOUS_STANDBY_NAMES": f"{who} (node2, node3)" if who else ""}
        self.keeps_all = bool(who)
        # The number of standbys that may be behind what is acknowledged.
        self.may_lag = {"": 2, "ANY 1": 1}.get(who, 0)

    def promote_the_most_advanced(self):
        most = max(NODES[1:], key=lambda node: float(self.node("position", node)))
        self.node("promote", most)
        return most
