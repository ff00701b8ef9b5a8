"""What a request gets that does not pass: a status, header fields, and a problem document (RFC 9457)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from .decision import Decision
from .error import BEYOND_SQL, Invalid, TallygateError, Transient
from .steps import Steps

_log = logging.getLogger("tallygate")
_TYPES = "https://iana.org/assignments/http-problem-types#"


class Refusal(NamedTuple):
    """An HTTP answer."""

    status: int
    phrase: str
    headers: list[tuple[str, str]]
    body: bytes


def admit(key: str | None, check: Callable[[str], Any]) -> Steps[Decision | Refusal]:
    """The decision by which a request passes, or what it gets in place of the application's answer."""
    if key is None:
        return of_nobody()
    try:
        decision: Decision = yield check(key)
    except TallygateError as error:
        return of_error(error)
    return of_decision(decision) if decision.blocked else decision


def of_decision(decision: Decision) -> Refusal:
    """429. `Retry-After` is the wait in seconds, rounded up, at least 1; none where waiting does not help."""
    wait_s = None if decision.replayed else _seconds(decision)
    if decision.replayed:
        detail = "the request was blocked before; a new attempt needs a new transaction"
    elif wait_s is None:
        detail = "the request can never pass as it is"
    else:
        detail = f"try again in {wait_s} s"
    document = {
        "type": _TYPES + ("abnormal-usage-detected" if decision.reason == "banned" else "quota-exceeded"),
        "title": "Too many requests",
        "status": 429,
        "detail": detail,
        "violated-policies": [decision.zone],
        "transaction": str(decision.txn_id),
    }
    return _refusal(429, "Too Many Requests", document, wait_s)


def of_nobody() -> Refusal:
    """400, where a request does not say whom it comes from."""
    return _plain(400, "Bad Request", "The request does not say whom it comes from")


def of_error(error: TallygateError) -> Refusal:
    """Where nothing could be decided nothing passes. What went wrong is logged for the operator, not told."""
    if isinstance(error, Invalid) and error.code not in BEYOND_SQL:  # a zone is the operator's
        return _plain(400, "Bad Request", "What the request says cannot be counted")
    _log.error("a request could not be checked: %s", error, exc_info=error)
    if isinstance(error, Transient):
        return _plain(503, "Service Unavailable", "Nothing can be decided now", wait_s=1)
    return _plain(500, "Internal Server Error", "Nothing can be decided")


def _seconds(decision: Decision) -> int | None:
    if decision.retry_after_us is None:
        return None
    return max(1, -(-decision.retry_after_us // 1_000_000))


def _plain(status: int, phrase: str, title: str, wait_s: int | None = None) -> Refusal:
    return _refusal(status, phrase, {"type": "about:blank", "title": title, "status": status}, wait_s)


def _refusal(status: int, phrase: str, document: dict[str, object], wait_s: int | None) -> Refusal:
    body = json.dumps(document).encode()
    headers = [
        ("content-type", "application/problem+json"),
        ("content-length", str(len(body))),
        ("cache-control", "no-store"),
    ]
    if wait_s is not None:
        headers.append(("retry-after", str(wait_s)))
    return Refusal(status, phrase, headers, body)
