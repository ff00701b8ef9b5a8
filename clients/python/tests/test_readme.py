"""The examples of the README are run, and what they print is compared."""

from __future__ import annotations

import contextlib
import doctest
import re
import subprocess
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import tallygate.limits

from .conftest import HERE, Db
from .serve import Server

README = (HERE.parent / "README.md").read_text()
EXAMPLES = re.findall(r"^```python (\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("engine", ["postgres", "mysql", "mariadb"])
def test_the_examples_show_what_they_print(
    database: Callable[[str], Db], engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = database(engine)
    forget(db)
    place = db.place
    for variable in ("host", "port", "user", "password"):
        for name in (f"PG{variable.upper()}", f"DB_{variable.upper()}"):
            monkeypatch.setenv(name, str(place[variable]))
    for name in ("PGDATABASE", "DB"):
        monkeypatch.setenv(name, place["dbname" if db.is_postgres else "database"])
    monkeypatch.setenv("STORAGE_URL", db.url("tallygate+" + ("postgresql" if db.is_postgres else engine)))

    examples = of("postgres" if db.is_postgres else "mysql")
    assert len(examples) == (4 if db.is_postgres else 1)
    names = run(examples)
    if isinstance(names["db"], psycopg.Connection):
        names["db"].close()


def test_the_examples_of_a_server_show_what_they_print(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALLYGATE_URL", serve().url)
    monkeypatch.delenv("TALLYGATE_TOKEN", raising=False)
    assert len(of("http")) == 1
    run(of("http"))


def test_the_example_of_a_clock_shows_what_it_prints(clocked: Db) -> None:
    forget(clocked)
    with clocked.connect_owner() as owner:
        assert len(of("clock")) == 1
        run(of("clock"), owner=owner, limiter=clocked.limiter())


def of(language: str) -> list[str]:
    return [text for each, text in EXAMPLES if each == language]


def run(examples: list[str], **names: Any) -> dict[str, Any]:
    """Runs examples one after the other, with some names, and gives the names that they leave."""
    for text in examples:
        test = doctest.DocTestParser().get_doctest(text, names, "README.md", "README.md", 0)
        told: list[str] = []
        failed = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(
            test, out=told.append, clear_globs=False
        )
        assert failed.failed == 0, "".join(told)
        names = test.globs
    return names


def forget(db: Db) -> None:
    """Another run may have run the examples in this database."""
    for zone, key in [
        ("card", "9f3c"),
        ("login", "user:ann"),
        ("login", "ip:203.0.113.9"),
        ("limits-5-per-60s", "LIMITER/user:ann/5/1/minute"),
    ]:
        with contextlib.suppress(subprocess.CalledProcessError):  # there is nothing to forget
            db.command("erase", zone, key, "--note", "another run")


def test_the_readme_names_what_is_there() -> None:
    for name in {*tallygate.__all__} - {"Recorded", "Charge"}:  # what functions answer
        assert name in README
    assert tallygate.limits.zone_name(5, 60) in README
    assert (HERE.parent / "test").exists()
