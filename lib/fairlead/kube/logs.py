"""Log lines as text or JSON, each with the id of its operation (one kubelet call, review or scheduling cycle).

`operation` logs begin and end with the duration; every line logged inside it, in any module, has the same 8-hex `op`.
Levels: ERROR an operation failed and needs an operator; WARNING degraded but continuing; INFO decisions and lifecycle; DEBUG
the reasons inside a decision.
"""

import contextlib
import contextvars
import json
import logging
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from fairlead.api.texts import line as one_line
from fairlead.api.texts import plain
from fairlead.kube.limits import Clock

_SAID_S = 10.0
current_op: contextvars.ContextVar[str] = contextvars.ContextVar("op", default="")

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "op", "taskName"}


def _new_id() -> str:
    return secrets.token_hex(4)


def configure(
    format: Literal["json", "text"] = "text",  # noqa: A002 - the flag's name
    level: str | int = "INFO",
    *,
    stream: TextIO | None = None,
) -> None:
    """Sends all log lines of the process to one stream (stderr) in one format. Call it once, from main."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    handler.addFilter(_stamp)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper() if isinstance(level, str) else level)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    logging.getLogger("aiohttp.server").addFilter(BRIEF)


@contextlib.contextmanager
def operation(
    logger: logging.Logger,
    name: str,
    *,
    level: int = logging.INFO,
    clock: Clock = time.monotonic,
    new_id: Callable[[], str] = _new_id,
    **fields: object,
) -> Iterator[str]:
    """Gives every line logged inside one `op`; logs `name` at begin, and at end with `duration_ms` and a raised error."""
    op = new_id()
    token = current_op.set(op)
    if not logger.isEnabledFor(level):  # lines that are not written must not cost a review time
        try:
            yield op
        finally:
            current_op.reset(token)
        return
    began = clock()
    logger.log(level, "%s: begin", name, extra=fields)
    try:
        yield op
    except BaseException as error:
        duration_ms = round((clock() - began) * 1000, 3)
        ended = fields | {"duration_ms": duration_ms, "error": f"{type(error).__name__}: {error}"}
        logger.log(level, "%s: failed", name, extra=ended)
        raise
    else:
        duration_ms = round((clock() - began) * 1000, 3)
        logger.log(level, "%s: end", name, extra=fields | {"duration_ms": duration_ms})
    finally:
        current_op.reset(token)


def _stamp(record: logging.LogRecord) -> bool:
    record.op = current_op.get()
    return True


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class JsonFormatter(logging.Formatter):
    """One object per line: time, level, logger, message, op, then the fields passed as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if op := getattr(record, "op", ""):
            line["op"] = op
        line |= _fields(record)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return plain(json.dumps(line, default=str, ensure_ascii=False))


class TextFormatter(logging.Formatter):
    """One line of text with the same content."""

    def format(self, record: logging.LogRecord) -> str:
        op = getattr(record, "op", "")
        fields = "".join(f" {key}={value}" for key, value in _fields(record).items())
        line = f"{_time(record)} {record.levelname:<7} {op or '-':<8} {record.name}: {record.getMessage()}{fields}"
        line = one_line(line)  # a message must not look like several
        if record.exc_info:
            line += "\n" + plain(self.formatException(record.exc_info))
        return line


class _Brief(logging.Filter):
    """What cannot be read as a request is its sender's fault: a line now and then, without a traceback."""

    def __init__(self) -> None:
        super().__init__()
        self._said = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if type(error).__module__ != "aiohttp.http_exceptions":
            return True
        if time.monotonic() - self._said < _SAID_S:
            return False
        self._said = time.monotonic()
        record.msg, record.args = "a request that cannot be read: %s", (f"{type(error).__name__}",)
        record.exc_info, record.levelno, record.levelname = None, logging.WARNING, "WARNING"
        return True


BRIEF = _Brief()
