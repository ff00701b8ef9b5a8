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

from .conftest import Db
from .serve import Limiters, Server

LIST = json.loads((Path(__file__).parents[2] / "conformance" / "steps.json").read_text())
CODES = {
    tallygate.Invalid: "invalid",
    tallygate.Conflict: "conflict",
    tallygate.UnknownZone: "unknown_zone",
}


def test_it_is_answered_what_the_list_says(db: Db, tmp_path: Path) -> None:
    zones = tmp_path / "zones.toml"
    zones.write_text(LIST["zones"])
    db.command("apply", os.fspath(zones), "--by", "tests")
    answer_alike(db.limiter())


def test_a_server_answers_what_the_list_says(serve: Callable[..., Server], limiters: Limiters) -> None:
    answer_alike(limiters(serve(zones=LIST["zones"]).url))


def answer_alike(limiter: Any) -> None:
    for number, step in enumerate(LIST["steps"]):
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
