"""A process that answers one question and ends: `python -m fairlead.ui.what_if.child`, the question on its standard input, both as JSON.

It reads the cluster itself, so the program that started it may kill it at any time, and what it takes of memory is gone with it. It is nicer than
the server, and the kernel ends it beyond `CPU_S`. Manifests are read first, before what computes is imported: what was made to be slow costs little.
The answer is `{"json": …, "shown": …}` or `{"error": …, "kind": "change" | "cluster"}`.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

from fairlead.bounded.limits import SMALL
from fairlead.ui.reading.manifests import documents

NICE = 10
CPU_S = 90
OOM_SCORE = Path("/proc/self/oom_score_adj")
Json = dict[str, Any]


def main() -> None:
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    with contextlib.suppress(OSError):
        OOM_SCORE.write_text("1000", encoding="ascii")  # where memory runs out, this ends and not the server
    gc.disable()  # of what is read nothing becomes free
    asked: Json = json.load(sys.stdin)
    if asked.get("memory_bytes"):  # where a container has none left, the kernel ends all of it
        resource.setrlimit(resource.RLIMIT_DATA, (asked["memory_bytes"], asked["memory_bytes"]))
    json.dump(_answer(asked), sys.stdout)


def _answer(asked: Json) -> Json:
    try:
        submit = list(documents(asked["question"].pop("manifests"), "manifests", SMALL))
    except ValueError as error:
        return {"error": str(error), "kind": "change"}
    from fairlead.ui.what_if.answer import reply  # seconds, and a hundred megabytes

    return reply(asked, submit)


if __name__ == "__main__":
    main()
