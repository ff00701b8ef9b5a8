"""Runs statements on a server as soon as it answers: python server.py URL STATEMENT..."""

from __future__ import annotations

import sys
import time
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymysql


def connect(url: str) -> Any:
    """A connection, once there is one; at most a minute is waited for it."""
    until = time.monotonic() + 60
    place = urlsplit(url)
    while True:
        try:
            if place.scheme == "postgres":
                return psycopg.connect(url, autocommit=True)
            return pymysql.connect(
                host=place.hostname or "",
                port=place.port or 0,
                user=place.username,
                password=place.password or "",
                database=place.path.removeprefix("/"),
                autocommit=True,
            )
        except (psycopg.OperationalError, pymysql.OperationalError):
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


if __name__ == "__main__":
    url, *statements = sys.argv[1:]
    with connect(url) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
