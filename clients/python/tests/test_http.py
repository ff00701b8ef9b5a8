"""Limiters that ask a server: a real one, one that is killed, and some that lie."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import subprocess
import threading
import traceback
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

import tallygate
from tallygate import Check
from tallygate.http import HttpLimiter

from .conftest import required
from .hostile import Answer, Hostile, problem, said
from .serve import Limiters, Server

SHORT = timedelta(milliseconds=300)
TOKEN = "tg_0123456789abcdef"

DECISION = {
    "allowed": True,
    "zone": "login",
    "key": "ann",
    "txn_id": str(UUID(int=7)),
    "blocked": False,
    "reason": "within_limit",
    "limit": 3,
    "remaining": 2,
    "retry_after_us": None,
    "delay_us": None,
    "ends_at": None,
    "seq": 1,
    "zone_version": 1,
    "decided_at": "2026-11-23T22:00:00.123456Z",
    "replayed": False,
}


def test_each_call_is_there(limiters: Limiters, server: Server, key: str) -> None:
    limiter = limiters(server.url + "/")
    assert limiter.check("login", key, 3).remaining == 0
    blocked = limiter.check("login", key)
    assert (blocked.reason, blocked.seq, blocked.id, blocked.zone_id) == ("over_limit", 2, None, None)
    assert timedelta(minutes=14) < blocked.retry_after <= timedelta(minutes=15)
    both = limiter.check_all([Check("card", key), Check("login", key, txn=uuid4())])
    assert [each.reason for each in both] == ["held_back", "over_limit"]
    assert limiter.peek("card", key).remaining == 1000
    held = limiter.reserve("card", key, 600, timedelta(minutes=10))
    assert held.ends_at - held.decided_at == timedelta(minutes=10)
    assert held.decided_at.utcoffset() == timedelta(0)
    settled = limiter.settle("card", key, held.txn_id, 700)
    assert (settled.remaining, settled.spent, settled.kind) == (300, 100, "settle")
    held = limiter.reserve("card", key, 100, timedelta(minutes=10))
    assert limiter.cancel("card", key, held.txn_id).remaining == 300
    spent = limiter.check("card", key, 99)
    assert limiter.refund("card", key, spent.txn_id).remaining == 300
    assert limiter.refund("card", key, spent.txn_id).replayed
    slot = limiter.check("upload", key)
    assert limiter.release("upload", key, slot.txn_id).remaining == 2
    critical = limiter.check("tried-cards", key, critical=True, member="a", record=True)
    assert (critical.remaining, critical.cost) == (1, 1)


def test_the_ledger_is_read(limiters: Limiters, server: Server, key: str) -> None:
    limiter = limiters(server.url)
    decisions = [limiter.check("login", key) for _ in range(4)]
    since = decisions[0].decided_at - timedelta(seconds=1)
    page = limiter.history(zone="login", key=key, blocked=False, since=since, limit=2)
    assert [row["txn_id"] for row in page["rows"]] == [str(each.txn_id) for each in decisions[2:0:-1]]
    page = limiter.history(zone="login", key=key, blocked=False, before=page["next"])
    assert [row["txn_id"] for row in page["rows"]] == [str(decisions[0].txn_id)]
    last = decisions[3].txn_id
    assert limiter.transaction(last)["rows"] == limiter.history(txn=last)["rows"]
    assert limiter.explain(last)["rows"][0]["reproduced"] is True
    for call in (limiter.transaction, limiter.explain):
        with pytest.raises(tallygate.TallygateError) as told:
            call(uuid4())
        assert told.value.code == "not_found"


@pytest.mark.parametrize("odd", ["..", ".", "a/../b", "a%2Fb", "?x=1&y#z", "ü 🦀 '\"\\"])
def test_a_key_in_a_path_is_its_own_bucket(limiters: Limiters, server: Server, odd: str) -> None:
    limiter = limiters(server.url)
    left = limiter.check("card", odd).remaining
    assert limiter.bucket("card", odd)["remaining"] == left
    assert limiter.history(zone="card", key=odd, limit=1)["rows"][0]["key"] == odd


def test_what_is_wrong_has_its_class_and_code(limiters: Limiters, server: Server, key: str) -> None:
    limiter = limiters(server.url)
    txn = limiter.check("login", key, 2).txn_id
    wrong: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        (tallygate.UnknownZone, "unknown_zone", lambda: limiter.check("nowhere", key)),
        (tallygate.Invalid, "invalid", lambda: limiter.check(1, key)),
        (tallygate.Conflict, "conflict", lambda: limiter.check("login", key, 1, txn)),
        (tallygate.Conflict, "conflict", lambda: limiter.settle("login", key, txn, 1)),
        (tallygate.Invalid, "invalid", lambda: limiter.check("login", "")),
        (tallygate.Invalid, "invalid", lambda: limiter.check("login", key, -1)),
        (tallygate.Invalid, "invalid", lambda: limiter.check("login", key, 10**30)),
        (tallygate.Invalid, "invalid", lambda: limiter.check("login", "lone \ud800")),
        (tallygate.Invalid, "invalid", lambda: limiter.check("tried-cards", key, member="tab \t")),
        (tallygate.Invalid, "invalid", lambda: limiter.check_all([])),
        (tallygate.Invalid, "invalid", lambda: limiter.history(limit=-1)),
        (tallygate.Invalid, "invalid", lambda: limiter.check("login", "x" * 2**20)),
    ]
    for kind, code, call in wrong:
        with pytest.raises(kind) as told:
            call()
        assert isinstance(told.value, tallygate.TallygateError)
        assert told.value.code == code
    with pytest.raises(tallygate.Invalid):
        limiter.bucket("login", "lone \ud800")
    with pytest.raises(TypeError):
        limiter.check("login", key, 1.5)


def test_other_limits_are_a_conflict(limiters: Limiters, server: Server, key: str) -> None:
    limiter, txn = limiters(server.url), uuid4()
    limiter.check_all([Check("login", key), Check("card", key)], txn)
    with pytest.raises(tallygate.Conflict):
        limiter.check_all([Check("login", key), Check("twenty", key)], txn)


def test_a_lost_answer_is_asked_for_again_under_the_same_key(
    limiters: Limiters, server: Server, key: str
) -> None:
    def lose(connection: socket.socket) -> None:
        """The server has decided; its answer does not come through."""
        with HttpLimiter(server.url) as limiter:
            limiter.check("login", key, txn=UUID(between.keys[0]))

    def pass_on(connection: socket.socket) -> None:
        decided = httpx.post(
            f"{server.url}/v1/check", json=json.loads(between.asked[-1].partition(b"\r\n\r\n")[2])
        )
        connection.sendall(said(decided.content))

    answers: list[Answer] = [
        lose,
        said(b"<html>Bad Gateway</html>", 502, "text/html"),
        problem(503, "transient"),
        problem(503, "leaving"),
        said({"message": "of a proxy"}, 504),
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{",
        b"no HTTP at all\r\n\r\n",
        pass_on,
    ]
    with Hostile(*answers) as between:
        decision = limiters(between.url).check("login", key)
    assert (decision.replayed, decision.remaining) == (True, 2)
    assert between.keys == [str(decision.txn_id)] * len(answers)
    assert limiters(server.url).peek("login", key).remaining == 2


def test_every_charge_has_a_key(limiters: Limiters) -> None:
    with Hostile(problem(400, "invalid")) as server:
        limiter = limiters(server.url)
        txn = uuid4()
        calls: list[Callable[..., Any]] = [
            partial(limiter.check, "login", "ann"),
            partial(limiter.check_all, [Check("login", "ann")]),
            partial(limiter.reserve, "login", "ann", 1, timedelta(minutes=1)),
        ]
        calls += [partial(call, txn=txn) for call in calls]
        calls += [
            partial(getattr(limiter, name), "login", "ann", txn) for name in ("cancel", "refund", "release")
        ]
        for call in calls:
            with pytest.raises(tallygate.Invalid):
                call()
    assert len({*server.keys[:3]} - {str(txn)}) == 3
    assert server.keys[3:] == [str(txn)] * 6
    for asked in server.asked:
        assert json.loads(asked.partition(b"\r\n\r\n")[2])["txn"] in server.keys


def test_a_server_that_is_killed_in_the_middle_has_charged_once(
    limiters: Limiters, serve: Callable[..., Server], key: str
) -> None:
    server = serve()
    limiter = limiters(server.url, deadline=timedelta(seconds=60), attempts=10_000)
    txns = [limiter.check("card", key).txn_id]
    for _ in range(3):
        ended = threading.Thread(target=server.kill_and_start)
        ended.start()
        while ended.is_alive():
            txns.append(limiter.check("card", key).txn_id)
        ended.join()
    rows = limiter.history(zone="card", key=key, limit=10_000)["rows"]
    assert sorted(row["txn_id"] for row in rows) == sorted(map(str, txns))
    assert limiter.peek("card", key).remaining == max(0, 1000 - len(txns))


def test_a_server_that_is_away_or_silent_is_given_up_at_the_deadline(limiters: Limiters) -> None:
    txn = uuid4()

    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            connection.sendall(b"1\r\n \r\n")

    with socket.create_server(("127.0.0.1", 0)) as silent, Hostile(drip) as dripping:
        silent_url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        for url in (silent_url, dripping.url, "http://127.0.0.1:1"):
            with pytest.raises(tallygate.Transient) as told:
                limiters(url, deadline=SHORT).check("login", "ann", txn=txn)
            assert (told.value.txn_id, told.value.code) == (txn, None)


# httpcore leaves the socket that it could not connect to the collector.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")
def test_a_socket_that_is_not_there_is_transient(limiters: Limiters) -> None:
    with pytest.raises(tallygate.Transient):
        limiters("unix:/nowhere/at.all", deadline=SHORT).check("login", "ann")


BENT: list[Any] = [
    b"",
    b"<html>",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"limit": ' + b"9" * 10_000 + b"}",
    None,
    7,
    "text",
    [],
    {},
    {"status": 503, "code": "transient", "detail": "no"},
    {"allowed": True},
    *(
        {**DECISION, name: value}
        for name, value in [
            ("txn_id", str(UUID(int=8))),
            ("txn_id", "no uuid"),
            ("txn_id", None),
            ("zone", "card"),
            ("key", "bob"),
            ("key", ["ann"]),
            ("blocked", "false"),
            ("blocked", 0),
            ("blocked", None),
            ("reason", 7),
            ("limit", -1),
            ("limit", 2**63),
            ("limit", 3.0),
            ("limit", True),
            ("remaining", "2"),
            ("remaining", float("nan")),
            ("retry_after_us", 10**40),
            ("retry_after_us", -1),
            ("decided_at", "yesterday"),
            ("decided_at", "2026-11-23T22:00:00"),
            ("decided_at", "2026-11-23T22:00:00+01:00"),
            ("decided_at", 7),
            ("ends_at", "0000-00-00T00:00:00Z"),
            ("replayed", None),
        ]
    ),
]


@pytest.mark.parametrize("bent", BENT, ids=lambda bent: ascii(bent)[:30])
def test_an_answer_that_is_none_is_never_a_decision(limiters: Limiters, bent: Any) -> None:
    txn = UUID(int=7)
    all_of_it = {"allowed": True, "blocked": False, "decisions": [bent]}
    asked: list[tuple[str, Any, Any]] = [
        ("check", ("login", "ann", 1, txn), bent),
        ("check_all", ([Check("login", "ann")], txn), bent),
        ("check_all", ([Check("login", "ann")], txn), bent if isinstance(bent, bytes) else all_of_it),
    ]
    for call, arguments, answer in asked:
        with Hostile(said(answer)) as server, pytest.raises(tallygate.TallygateError) as told:
            getattr(limiters(server.url), call)(*arguments)
        assert type(told.value) is tallygate.TallygateError
        assert told.value.txn_id == txn
        assert len(server.asked) == 1


def test_a_straight_answer_is_a_decision(limiters: Limiters) -> None:
    """Else what is bent above would be refused for another reason."""
    with Hostile(said(DECISION)) as server:
        decision = limiters(server.url).check("login", "ann", txn=UUID(int=7))
    assert decision.decided_at == datetime(2026, 11, 23, 22, 0, 0, 123456, timezone.utc)
    with Hostile(said({"decisions": [DECISION]})) as server:
        assert limiters(server.url).check_all([Check("login", "ann")], UUID(int=7)) == [decision]
    for decisions in ([], [DECISION, DECISION]):
        with Hostile(said({"decisions": decisions})) as server, pytest.raises(tallygate.TallygateError):
            limiters(server.url).check_all([Check("login", "ann")], UUID(int=7))


@pytest.mark.parametrize(
    ("name", "value"),
    [("txn_id", str(UUID(int=8))), ("zone", "card"), ("key", "bob"), ("kind", "cancel"), ("cost", None)],
)
def test_an_end_of_another_charge_is_no_answer(limiters: Limiters, name: str, value: Any) -> None:
    row = {**DECISION, "kind": "refund", "cost": 1, "spent": 0, "recorded_at": DECISION["decided_at"]}
    with Hostile(said({"recorded": [row]})) as server:
        assert limiters(server.url).refund("login", "ann", UUID(int=7)).cost == 1
    for rows in ([{**row, name: value}], [], [row, row]):
        with Hostile(said({"recorded": rows})) as server, pytest.raises(tallygate.TallygateError) as told:
            limiters(server.url).refund("login", "ann", UUID(int=7))
        assert type(told.value) is tallygate.TallygateError


def test_a_problem_is_what_its_code_says(limiters: Limiters) -> None:
    for answer, kind, code in [
        (problem(409, "conflict"), tallygate.Conflict, "conflict"),
        (problem(500, "schema"), tallygate.Schema, "schema"),
        (problem(500, "refused"), tallygate.Refused, "refused"),
        (problem(500, "database"), tallygate.TallygateError, "database"),
        (problem(400, "a_new_one"), tallygate.TallygateError, "a_new_one"),
        (problem(400, "x" * 1000), tallygate.TallygateError, None),
        (problem(400, ["conflict"]), tallygate.TallygateError, None),
        (problem(400, "invalid", {"a": 1}), tallygate.Invalid, "invalid"),
        (problem(400, "invalid", None), tallygate.Invalid, "invalid"),
        (said(b"[]", 404), tallygate.TallygateError, None),
        (said(DECISION, 201), tallygate.TallygateError, None),
        (said(b"", 204), tallygate.TallygateError, None),
    ]:
        with Hostile(answer) as server, pytest.raises(tallygate.TallygateError) as told:
            limiters(server.url).check("login", "ann", txn=UUID(int=7))
        assert (type(told.value), told.value.code) == (kind, code)
        assert len(server.asked) == 1


def test_a_gigantic_answer_is_not_kept(limiters: Limiters) -> None:
    sent = 0

    def flood(connection: socket.socket) -> None:
        nonlocal sent
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n")
        while True:
            sent += connection.send(b" " * 2**20)

    with Hostile(flood) as server, pytest.raises(tallygate.TallygateError, match="more than"):
        limiters(server.url, deadline=timedelta(seconds=60)).check("login", "ann")
    assert sent < 2**28
    # A packed answer is not unpacked.
    packed = said(b"\x1f\x8b" + b"\x00" * 100, 200, "application/json", "Content-Encoding: gzip")
    with Hostile(packed) as server, pytest.raises(tallygate.TallygateError, match="no object"):
        limiters(server.url).check("login", "ann")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirection_is_not_followed(limiters: Limiters, status: int) -> None:
    with Hostile(said(DECISION)) as elsewhere:
        away = said(b"", status, "text/html", f"Location: {elsewhere.url}/v1/check")
        with Hostile(away) as server, pytest.raises(tallygate.TallygateError, match=str(status)):
            limiters(server.url, token=TOKEN).check("login", "ann", txn=UUID(int=7))
    assert elsewhere.asked == []


def test_a_cookie_is_not_kept(limiters: Limiters) -> None:
    with Hostile(said(DECISION, 200, "application/json", "Set-Cookie: a=b; Path=/")) as server:
        limiter = limiters(server.url)
        for _ in range(2):
            limiter.check("login", "ann", txn=UUID(int=7))
    assert len(server.asked) == 2
    assert not any(b"cookie" in asked.lower() for asked in server.asked)


def test_the_environment_names_no_proxy(limiters: Limiters, monkeypatch: pytest.MonkeyPatch) -> None:
    with Hostile(said(DECISION)) as proxy, Hostile(said(DECISION)) as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        limiters(server.url, token=TOKEN).check("login", "ann", txn=UUID(int=7))
    assert (len(proxy.asked), len(server.asked)) == (0, 1)


def test_a_token_is_sent_and_is_for_its_zones(
    limiters: Limiters, serve: Callable[..., Server], tmp_path: Path
) -> None:
    tokens = os.fspath(tmp_path / "tokens.toml")
    add = [required("TALLYGATE_COMMAND"), "token", "add", "web", "--role", "app", "--zones", "login"]
    made = subprocess.run([*add, "--file", tokens], check=True, capture_output=True, text=True)
    url, token = serve("--tokens", tokens).url, made.stdout.strip()
    assert limiters(url, token=token).check("login", "ann").allowed
    for limiter, code in [(limiters(url, token=token), "forbidden"), (limiters(url), "unknown_caller")]:
        with pytest.raises(tallygate.Refused) as told:
            limiter.check("card", "ann")
        assert told.value.code == code


def test_a_token_is_shown_nowhere(limiters: Limiters, caplog: pytest.LogCaptureFixture) -> None:
    with Hostile(said(DECISION)) as server, caplog.at_level(logging.DEBUG):
        limiters(server.url, token=TOKEN).check("login", "ann", txn=UUID(int=7))
    assert caplog.records
    # Words of a server that are not understood are shown by httpcore to whoever debugs, whatever they are.
    caplog.set_level(logging.INFO)
    answers = [
        problem(401, "unknown_caller", f"nobody has {TOKEN}, {TOKEN}"),
        f"HTTP/1.1 {TOKEN}\r\n\r\n".encode(),
        said({**DECISION, "decided_at": TOKEN}),
        said({**DECISION, TOKEN: TOKEN, "reason": None}),
        said(TOKEN.encode(), 418),
    ]
    for answer in answers:
        with Hostile(answer) as server:
            limiter = limiters(server.url, token=TOKEN, deadline=SHORT)
            with pytest.raises(tallygate.TallygateError) as told:
                limiter.check("login", "ann", txn=UUID(int=7))
        assert TOKEN.encode() in server.asked[0]
        shown = "".join(traceback.format_exception(told.value)) + repr(told.value) + repr(limiter)
        shown += repr(vars(limiter)) + repr(vars(getattr(limiter, "limiter", limiter)))
        assert TOKEN not in shown
    assert TOKEN not in caplog.text
    assert "ann" not in caplog.text


@pytest.mark.parametrize("token", ["", "tg_\n", "tg a", "tg_\r\nX: y", "tĝ", "\x00"])
def test_what_no_token_can_be_is_refused_and_not_told(limiters: Limiters, token: str) -> None:
    with pytest.raises(ValueError, match="token add") as told:
        HttpLimiter("http://localhost:7411", token=token)
    assert not token or token not in str(told.value)


@pytest.mark.parametrize(
    "url",
    [
        *["", "localhost:7411", "ftp://x", "http://", "unix:", "unix:relative", "http://x:secret"],
        *["http://user:secret@x", "http://x?secret", "http://x#secret", "http://secret\x00"],
    ],
)
def test_what_is_no_place_is_refused_and_not_told(url: str) -> None:
    with pytest.raises(ValueError, match=r"unix:/run/tallygate\.sock") as told:
        HttpLimiter(url)
    assert "secret" not in "".join(traceback.format_exception(told.value))


def test_what_a_server_says_is_one_short_line(limiters: Limiters) -> None:
    words = problem(400, "invalid", "one\nERROR two\x1b[31m" + "x" * 10**6)
    with Hostile(words) as server, pytest.raises(tallygate.Invalid) as told:
        limiters(server.url).check("login", "ann")
    assert str(told.value).startswith("one ERROR two ")
    assert str(told.value).isprintable()
    assert len(str(told.value)) == 500


def test_a_socket_of_unix_is_asked(limiters: Limiters, serve: Callable[..., Server], tmp_path: Path) -> None:
    server = serve(listen=f"unix:{tmp_path}/tallygate.sock")
    assert server.url == f"unix:{tmp_path}/tallygate.sock"
    assert limiters(server.url).check("login", "ann").allowed


def test_a_transport_of_ones_own_is_used(limiters: Limiters) -> None:
    made = []

    class Answering(httpx.MockTransport):
        def __init__(self) -> None:
            made.append(self)
            super().__init__(lambda request: httpx.Response(200, content=json.dumps(DECISION).encode()))

    limiter = limiters("https://tallygate.example", transport=Answering)
    assert [limiter.check("login", "ann", txn=UUID(int=7)).remaining for _ in range(2)] == [2, 2]
    assert len(made) == 1


def test_a_forked_process_leaves_its_parents_connection_alone(server: Server, key: str) -> None:
    with HttpLimiter(server.url) as limiter:
        limiter.check("card", key)
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                for _ in range(100):
                    limiter.check("card", key)
                os._exit(0)
            os._exit(77)
        for _ in range(100):
            limiter.check("card", key)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert limiter.peek("card", key).remaining == 1000 - 201
