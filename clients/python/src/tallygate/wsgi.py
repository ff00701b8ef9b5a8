"""Middleware for WSGI: Flask, Django, Bottle."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from . import steps
from .address import ClientAddress
from .asking import Checks
from .refusal import Refusal, admit

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


class RateLimitMiddleware:
    """Lets a request reach the application only where its check passes.

    The arguments and answers are those of `tallygate.asgi.RateLimitMiddleware`; `key` and `zone` are given
    the environ. The application finds the decision in `environ["tallygate.decision"]`.
    """

    def __init__(
        self,
        app: WSGIApplication,
        limiter: Checks,
        zone: str | int | Callable[[dict[str, Any]], str | int | None],
        key: ClientAddress | Callable[[dict[str, Any]], str | None] | None = None,
    ) -> None:
        key = key or ClientAddress()
        self._app = app
        self._check = limiter.check
        self._zone = zone if callable(zone) else lambda _: zone
        self._key = key.of_environ if isinstance(key, ClientAddress) else key

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """A WSGI application."""
        zone = self._zone(environ)
        if zone is None:
            return self._app(environ, start_response)
        admitted = steps.run(admit(self._key(environ), functools.partial(self._check, zone)))
        if isinstance(admitted, Refusal):
            return _refuse(admitted, start_response)
        environ["tallygate.decision"] = admitted
        return self._app(environ, start_response)


def _refuse(refusal: Refusal, start_response: StartResponse) -> Iterable[bytes]:
    start_response(f"{refusal.status} {refusal.phrase}", refusal.headers)
    return [refusal.body]
