"""The list of steps that every face answers alike."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import tallygate
from tallygate import Check
from tallygate.error import BEYOND_SQL
from tallygate.http import HttpLimiter

from .conftest import APP, Db
from .serve import Limiters, Server

LIST = json.loads((Path(__file__).parents[2] / "conformance" / "steps.json").read_text())
CODES = {
    tallygate.Invalid: "invalid",
    tallygate.Conflict: "conflict",
    tallygate.UnknownZone: "unknown_zone",
}

# Calls, arguments and zones that SQL does not decide.
CALLS = "check-all reserve settle cancel release".split()
ARGUMENTS = {"critical", "member"}
ZONES = "faces-cards faces-slots faces-trial faces-warned faces-guarded".split()


def test_it_is_answered_what_the_list_says(db: Db, serve: Callable[..., Server], tmp_path: Path) -> None:
    """What SQL refuses a server does in the same database, so that the next steps find what they expect."""
    settings = tmp_path / "tallygate.toml"
    settings.write_text(f'[database]\napp = "{db.url(db.engine, APP)}"\noperator = "{db.owner_url}"\n')
    server = serve("--config", os.fspath(settings), zones=LIST["zones"])
    by_sql = db.limiter()
    with HttpLimiter(server.url) as by_server:
        for number, step in enumerate(LIST["steps"]):
            call, body = step["call"], step["body"]
            if call in CALLS or ARGUMENTS & body.keys():
                with pytest.raises(tallygate.Invalid, match="needs the server"):
                    _ask(by_sql, call, dict(body))
                answer_alike(by_server, number, step)
            elif body["zone"] in ZONES:
                with pytest.raises(tallygate.Invalid) as told:
                    _ask(by_sql, call, dict(body))
                assert told.value.code in BEYOND_SQL
                answer_alike(by_server, number, step)
            else:
                answer_alike(by_sql, number, step)


def test_a_server_answers_what_the_list_says(serve: Callable[..., Server], limiters: Limiters) -> None:
    limiter = limiters(serve(zones=LIST["zones"]).url)
    for number, step in enumerate(LIST["steps"]):
        answer_alike(limiter, number, step)


def answer_alike(limiter: Any, number: int, step: dict[str, Any]) -> None:
    if "error" in step:
        with pytest.raises(tuple(CODES)) as told:
            _ask(limiter, step["call"], dict(step["body"]))
        assert CODES[type(told.value)] == step["error"], number
    else:
        assert_says(_ask(limiter, step["call"], dict(step["body"])), step["answer"], f"step {number}")


def _ask(limiter: Any, call: str, body: dict[str, Any]) -> Any:
    if "txn" in body:
        body["txn"] = UUID(body["txn"])
    if "ttl_us" in body:
        body["ttl"] = timedelta(microseconds=body.pop("ttl_us"))
    if call == "check-all":
        decisions = limiter.check_all([Check(**check) for check in body["checks"]], body["txn"])
        return {"blocked": any(decision.blocked for decision in decisions), "decisions": decisions}
    return getattr(limiter, call)(**body)


def assert_says(answer: Any, expected: Any, at: str) -> None:
    """What the list says of an answer is so; what it does not say may be anything."""
    if isinstance(expected, dict):
        for name, value in expected.items():
            told = answer[name] if isinstance(answer, dict) else getattr(answer, name)
            assert_says(told, value, f"{at}, {name}")
    elif isinstance(expected, list):
        for number, (told, value) in enumerate(zip(answer, expected, strict=True)):
            assert_says(told, value, f"{at}, {number}")
    else:
        assert answer == expected, at
