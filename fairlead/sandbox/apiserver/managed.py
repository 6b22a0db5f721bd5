"""Who owns which field: keeps metadata.managedFields at every write. (Filled in with server-side apply.)"""

from __future__ import annotations

from fairlead.sandbox.apiserver.call import Call
from fairlead.sandbox.apiserver.kinds.base import Json


def track(call: Call, new: Json, old: Json | None, *, subresource: str = "") -> None:
    """Give the fields that this write changes to its manager, in place."""
    if old is not None and "managedFields" in old["metadata"]:
        new["metadata"]["managedFields"] = old["metadata"]["managedFields"]


def apply_new(call: Call, applied: Json, manager: str) -> None:
    return


def apply(call: Call, live: Json, applied: Json, manager: str, *, force: bool) -> Json:
    from fairlead.sandbox.apiserver import mergepatch

    merged: Json = mergepatch.apply(live, applied)
    return merged
