"""A server that answers what a test says, and remembers what it was asked."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

Answer = bytes | Callable[[socket.socket], None]


class Hostile:
    """Gives its answers one after the other, each on a connection that it closes; the last for ever."""

    def __init__(self, *answers: Answer) -> None:
        self.asked: list[bytes] = []
        self._answers = list(answers)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Hostile:
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10)
        assert not self._thread.is_alive(), "who asked has never left"

    @property
    def keys(self) -> list[str]:
        """The Idempotency-Key of each request."""
        return [
            key.decode() for asked in self.asked for key in re.findall(rb"(?i)idempotency-key: (\S+)", asked)
        ]

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                self.asked.append(_request(connection))
                answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
                if callable(answer):
                    answer(connection)
                else:
                    connection.sendall(answer)


def said(document: Any, status: int = 200, kind: str = "application/json", *fields: str) -> bytes:
    """An answer with a body: an object, or bytes as they are."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    head = [f"HTTP/1.1 {status} So", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *fields]
    return "\r\n".join([*head, "Connection: close", "", ""]).encode() + body


def problem(status: int, code: Any, detail: Any = "so it is") -> bytes:
    return said({"status": status, "code": code, "detail": detail}, status, "application/problem+json")


def _request(connection: socket.socket) -> bytes:
    asked = b""
    while b"\r\n\r\n" not in asked:
        asked += _more(connection)
    length = int((re.findall(rb"(?i)content-length: (\d+)", asked) or [b"0"])[0])
    while len(asked.partition(b"\r\n\r\n")[2]) < length:
        asked += _more(connection)
    return asked


def _more(connection: socket.socket) -> bytes:
    more = connection.recv(65536)
    if not more:
        raise OSError("nothing was asked")
    return more
