"""How much memory a block takes at its peak, as the kernel counts it for this process."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


@dataclass(slots=True)
class Peak:
    """Beyond what the process had; known once the block has ended, 0 where the kernel does not tell."""

    bytes: int = 0


@contextmanager
def peak() -> Iterator[Peak]:
    """Of the block."""
    found = Peak()
    gc.collect()
    try:
        _CLEAR.write_text("5")  # the peak begins anew
    except OSError:
        yield found
        return
    before = _kib("VmRSS")
    yield found
    found.bytes = (_kib("VmHWM") - before) * 1024


@contextmanager
def at_most(bytes_max: int) -> Iterator[None]:
    """Fail where the block takes more than that beyond what the process has. Where the kernel does not tell, nothing is judged.

    Raises:
        AssertionError: it did.
    """
    with peak() as found:
        yield
    assert found.bytes <= bytes_max, f"{found.bytes // 2**20} MiB at the peak, at most {bytes_max // 2**20} are allowed"


def _kib(name: str) -> int:
    return next(int(line.split()[1]) for line in _STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
