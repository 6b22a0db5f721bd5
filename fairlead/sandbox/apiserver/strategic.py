"""Strategic merge patch. (Filled in next.)"""

from __future__ import annotations

from typing import Any

from fairlead.sandbox.apiserver import mergepatch


class StrategicPatchError(ValueError):
    """The patch contradicts itself or the schema."""


def apply(document: Any, patch: Any, schema: dict[str, Any]) -> Any:
    return mergepatch.apply(document, patch)
