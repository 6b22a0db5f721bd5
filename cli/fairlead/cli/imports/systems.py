"""The systems by the names that `--from` takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from fairlead.cli.imports import kueue, runai, volcano, yunikorn
from fairlead.cli.imports.documents import Document
from fairlead.cli.imports.model import Imported

System = Literal["kueue", "volcano", "yunikorn", "runai"]
READERS: dict[System, Callable[[Iterable[Document]], Imported]] = {
    "kueue": kueue.read,
    "volcano": volcano.read,
    "yunikorn": yunikorn.read,
    "runai": runai.read,
}
"""Each takes documents, and raises RefusedError with every fault."""
