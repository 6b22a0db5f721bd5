"""The processes that this one started and has not reaped."""

from __future__ import annotations

import os
from pathlib import Path


def children() -> set[int]:
    """Of every thread, ended ones among them. Linux with CONFIG_PROC_CHILDREN; empty elsewhere."""
    tasks = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return {int(pid) for each in tasks for pid in each.read_text().split()}
