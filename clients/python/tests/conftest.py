"""The databases of the tests, and what a house has in them: users, and zones."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import psycopg
import pymysql
import pytest

import tallygate
from tallygate.http import HttpLimiter

from .serve import Awaited, Limiters, Server

HERE = Path(__file__).parent
CALLER = "tallygate_caller"  # an application that speaks SQL
APP = "tallygate_app"  # a server


class Db(NamedTuple):
    """A migrated database, and how the application connects to it."""

    engine: str
    owner_url: str

    @property
    def is_postgres(self) -> bool:
        return self.engine == "postgres"

    @property
    def clocked(self) -> Db:
        """The database of tests beside it, whose clock is set by hand."""
        return self._replace(owner_url=self.owner_url.removesuffix("app") + "clocked")

    @property
    def place(self) -> dict[str, Any]:
        """The application's arguments for the driver."""
        url = urlsplit(self.owner_url)
        name = "dbname" if self.is_postgres else "database"
        return {
            "host": url.hostname,
            "port": url.port,
            "user": CALLER,
            "password": unquote(url.password or ""),
            name: url.path.removeprefix("/"),
        }

    def url(self, scheme: str, user: str = CALLER) -> str:
        """The application's URL, for whom a scheme says what connects."""
        url = urlsplit(self.owner_url)
        return f"{scheme}://{user}:{url.password}@{url.hostname}:{url.port}{url.path}"

    def connect(self, **options: Any) -> Any:
        """A connection of the application's, without autocommit unless it is asked for."""
        return (psycopg.connect if self.is_postgres else pymysql.connect)(**self.place, **options)

    def limiter(self, **options: Any) -> tallygate.Limiter:
        return tallygate.Limiter(tallygate.kept(lambda: self.connect(autocommit=True)), **options)

    def connect_owner(self, **options: Any) -> Any:
        """A connection of the owner's."""
        place = {**self.place, "user": urlsplit(self.owner_url).username}
        return (psycopg.connect if self.is_postgres else pymysql.connect)(**place, **options)

    def owner(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """What a statement of the owner's says, committed."""
        with self.connect_owner(autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(sql, values)
            return list(cursor.fetchall()) if cursor.description else []

    def rows(self, key: str) -> int:
        """How many rows the ledger has of a key, in all zones."""
        of_key = "bucket_key = %s" if self.is_postgres else "bucket_key = cast(%s as binary)"
        [(rows,)] = self.owner(f"select count(*) from zone_txn where {of_key}", key)
        return int(rows)

    def command(self, *arguments: str) -> None:
        """Runs the project's command as the owner."""
        command = required("TALLYGATE_COMMAND")
        subprocess.run([command, *arguments, "--database", self.owner_url], check=True, capture_output=True)


def required(variable: str) -> str:
    """A variable that a test cannot do without."""
    value = os.environ.get(variable)
    if not value:
        pytest.fail(f"{variable} is not set: run clients/python/test, which provides it", pytrace=False)
    return value


@pytest.fixture(scope="session")
def database() -> Callable[[str], Db]:
    """A database by its engine; its zones are made when it is first asked for."""
    known: dict[str, Db] = {}

    def find(engine: str) -> Db:
        if engine not in known:
            db = Db(engine, required(f"TALLYGATE_TEST_PYTHON_{engine.upper()}"))
            for each in (db, db.clocked):
                each.command("apply", str(HERE / "zones.toml"), "--by", "tests")
            known[engine] = db
        return known[engine]

    return find


@pytest.fixture(params=["postgres", "mysql", "mariadb"])
def db(request: pytest.FixtureRequest, database: Callable[[str], Db]) -> Db:
    return database(request.param)


@pytest.fixture
def clocked(db: Db) -> Db:
    return db.clocked


@pytest.fixture
def postgres(database: Callable[[str], Db]) -> Db:
    return database("postgres")


@pytest.fixture
def connection(db: Db) -> Iterator[Any]:
    """A connection of the application's with no transaction open yet; each statement begins one."""
    connection = db.connect()
    yield connection
    connection.close()


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[..., Server]]:
    """Starts servers with the zones of the tests, or others."""
    servers: list[Server] = []

    def start(*arguments: str, zones: str | None = None, listen: str = "127.0.0.1:0") -> Server:
        zones = zones or (HERE / "zones.toml").read_text()
        servers.append(Server(required("TALLYGATE_COMMAND"), zones, *arguments, listen=listen))
        return servers[-1]

    yield start
    for server in servers:
        server.end()


@pytest.fixture(scope="session")
def server(serve: Callable[..., Server]) -> Server:
    return serve()


@pytest.fixture(params=[HttpLimiter, Awaited], ids=["http", "asynchronous http"])
def limiters(request: pytest.FixtureRequest) -> Iterator[Limiters]:
    """Makes limiters that ask a server; the asynchronous one is awaited."""
    made = Limiters(request.param)
    yield made
    made.close()


_numbers = itertools.count()


@pytest.fixture
def key() -> str:
    """A bucket that no other test and no other run has."""
    return f"user:{os.getpid()}-{os.urandom(4).hex()}-{next(_numbers)}"
