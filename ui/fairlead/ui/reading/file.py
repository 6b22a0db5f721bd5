"""The facts of a snapshot's file (`fairlead snapshot > FILE`): read once, decided on once, and then the same for as long as it is shown."""

from __future__ import annotations

from pathlib import Path

from fairlead.bounded import files
from fairlead.bounded.limits import UnreadableError
from fairlead.engine.plan.decide import decide
from fairlead.history.facts.errors import FactsError
from fairlead.history.facts.snapshot_file import load
from fairlead.kube.resources import Raw
from fairlead.ui.model.facts import Facts
from fairlead.ui.model.planned import facts
from fairlead.ui.reading.errors import NotReadError


class FileSource:
    """Raises NotReadError for a file that is no snapshot."""

    def __init__(self, path: Path) -> None:
        try:
            found = load(files.unpacked(path))
        except (FactsError, UnreadableError, OSError) as error:
            raise NotReadError(f"{path}: {error}") from error
        plan = decide(found.snapshot, found.now)
        self._facts = facts(found.snapshot, plan, found.now, origin=path.name)

    async def facts(self) -> Facts:
        return self._facts

    async def events(self, kind: str, namespace: str, name: str) -> tuple[Raw, ...]:
        return ()  # a snapshot has none
