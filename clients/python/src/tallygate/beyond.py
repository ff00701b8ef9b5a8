"""What SQL does not decide: each such call raises one error over SQL, before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from .call import Call, CheckOne
from .error import Invalid


def require_sql(call: Call[Any]) -> None:
    """Refuses what only the server decides of a check. Invalid."""
    if isinstance(call, CheckOne):
        named = "check" if call.check.cost or call.check.record else "peek"
        for argument in ("critical", "member", "ttl"):
            if getattr(call.check, argument) not in (None, False):
                raise _needs_server(f"{named} with {argument}")


def _needs_server(call: str, by: str = "tallygate.http") -> Invalid:
    return Invalid(
        f"{call} needs the server: connect with an http:// address ({by}); "
        "SQL decides plain checks and refunds only"
    )


def _refused(*call: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise _needs_server(*call)

    return refuse


class BeyondSql:
    """The names of the calls that need the server, for limiters over SQL: each refuses."""

    check_all = _refused("check_all")
    check_many = _refused("check_many", "POST /v1/checks")
    reserve = _refused("reserve")
    settle = _refused("settle")
    cancel = _refused("cancel")
    release = _refused("release")
