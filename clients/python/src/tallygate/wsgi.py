"""Middleware for WSGI: Flask, Django, Bottle."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from .address import ClientAddress
from .error import TallygateError
from .limiter import Limiter
from .refusal import Refusal, of_decision, of_error, of_nobody

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


class RateLimitMiddleware:
    """Lets a request reach the application only where its check passes.

    The arguments and answers are those of `tallygate.asgi.RateLimitMiddleware`; `key` is given the environ.
    The application finds the decision in `environ["tallygate.decision"]`.
    """

    def __init__(
        self,
        app: WSGIApplication,
        limiter: Limiter,
        zone: str | int,
        key: ClientAddress | Callable[[dict[str, Any]], str | None] | None = None,
    ) -> None:
        key = key or ClientAddress()
        self._app = app
        self._limiter = limiter
        self._zone = zone
        self._key = key.of_environ if isinstance(key, ClientAddress) else key

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """A WSGI application."""
        key = self._key(environ)
        if key is None:
            return _refuse(of_nobody(), start_response)
        try:
            decision = self._limiter.check(self._zone, key)
        except TallygateError as error:
            return _refuse(of_error(error), start_response)
        if decision.blocked:
            return _refuse(of_decision(decision), start_response)
        environ["tallygate.decision"] = decision
        return self._app(environ, start_response)


def _refuse(refusal: Refusal, start_response: StartResponse) -> Iterable[bytes]:
    start_response(f"{refusal.status} {refusal.phrase}", refusal.headers)
    return [refusal.body]
