"""A server of the tests, `tallygate serve` on SQLite, and limiters that ask it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from tallygate.http import AsyncHttpLimiter


class Server:
    """A server with a folder of its own, where its database and its zones are."""

    def __init__(self, command: str, zones: str, *arguments: str, listen: str = "127.0.0.1:0") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tallygate-"))
        (self.folder / "zones.toml").write_text(zones)
        self._start = (command, "serve", "--zones", "zones.toml", *arguments, "--listen")
        self.start(listen)

    def start(self, listen: str) -> None:
        """Starts it, and waits until it says where it listens."""
        self._process = subprocess.Popen(
            [*self._start, listen],
            cwd=self.folder,
            env={"PATH": os.environ["PATH"]},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        said = ""
        for line in self._process.stderr:
            said += line
            if found := re.match(r"serving (\S+)", line):
                self.url = found[1]
                return
        pytest.fail(f"tallygate serve ended: {said}")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def end(self) -> None:
        self.kill()
        shutil.rmtree(self.folder)

    def kill_and_start(self) -> None:
        """Ends it without notice, and starts it again at the same place."""
        self.kill()
        self.start(self.url.removeprefix("http://"))


class Awaited:
    """An asynchronous limiter whose calls are awaited one by one, in an event loop beside the test."""

    def __init__(self, url: str, **options: Any) -> None:
        self.limiter = AsyncHttpLimiter(url, **options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            return self._run(getattr(self.limiter, name)(*arguments, **named))

        return call

    def close(self) -> None:
        self._run(self.limiter.aclose())
        self._run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, call: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()


class Limiters:
    """Makes limiters of one kind, and closes them."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._made: list[Any] = []

    def __call__(self, url: str, **options: Any) -> Any:
        self._made.append(self._kind(url, **options))
        return self._made[-1]

    def close(self) -> None:
        for limiter in self._made:
            limiter.close()
