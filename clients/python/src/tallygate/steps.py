"""What waits, written once: a generator that yields wherever an asynchronous program waits.

It yields the very call that it waits for. A synchronous call has its answer by then; an asynchronous one is
awaited by who runs the generator, and its answer or its error comes back to where it was yielded.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T")
Steps = Generator[Any, Any, T]


def run(steps: Steps[T]) -> T:
    """Runs steps whose calls are synchronous."""
    try:
        answer = next(steps)
        while True:
            answer = steps.send(answer)
    except StopIteration as end:
        value: T = end.value
        return value


async def run_async(steps: Steps[T]) -> T:
    """Runs steps whose calls are asynchronous."""
    try:
        call = next(steps)
        while True:
            try:
                answer = await call
            except BaseException as error:
                call = steps.throw(error)
            else:
                call = steps.send(answer)
    except StopIteration as end:
        value: T = end.value
        return value
