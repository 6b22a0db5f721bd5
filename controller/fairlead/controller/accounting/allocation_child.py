"""A process that computes one answer to `GET /allocation` and ends: what is asked as JSON on its standard input, the status and the body on its output.

So it takes no CPU of the controller's loop, and what it takes of memory is gone with it. The kernel ends it beyond `CPU_S`; it may take `MEMORY_BYTES`.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

from fairlead.api.base import ManifestError
from fairlead.api.flavor import Flavor
from fairlead.history.cost import opencost
from fairlead.history.ledger.store.place import LedgerError
from fairlead.history.ledger.store.reader import open_reader
from fairlead.history.prices import PriceBook

NICE = 10
CPU_S = 25
MEMORY_BYTES = 2**30
ANSWER_BYTES_MAX = 32 * 2**20


def main() -> None:
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    asked = json.load(sys.stdin)
    status, body = answer(asked["ledger"], asked["query"], asked["flavors"])
    text = json.dumps(body)
    if len(text) > ANSWER_BYTES_MAX:
        status = 413
        text = json.dumps(
            problem(
                status,
                f"the answer has more than {ANSWER_BYTES_MAX} bytes: ask for a shorter window, or aggregate by less",
            )
        )
    sys.stdout.writelines((f"{status}\n", text))


def answer(ledger: str, query: Mapping[str, str], flavors: Iterable[Mapping[str, Any]]) -> tuple[int, opencost.Json]:
    prices: list[Flavor] = []
    for raw in flavors:
        with contextlib.suppress(ManifestError):  # its status says so
            prices.append(Flavor.stored(dict(raw)))
    try:
        with contextlib.closing(open_reader(ledger)) as reader:
            return opencost.allocation(query, reader, PriceBook.of(prices), now_s=time.time())
    except LedgerError as error:
        return 503, problem(503, str(error))


def problem(status: int, message: str) -> opencost.Json:
    return {"code": status, "status": "", "data": None, "message": f"Error: {message}"}


if __name__ == "__main__":
    main()
