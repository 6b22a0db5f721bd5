"""Sizes of gangs that nobody wrote: the webhook counts a workload's pods, and says in the pods' template of what it counted them.

Such a size follows its workload: a Job of 12 that is made a Job of 6 while it waits is a gang of 6, though its template cannot change.
`fairlead.dev/gang-size-from: Job/shrink` says so. A size without that key is a user's, and stays.

Of two generations of one workload's pods, such as those of a Deployment whose template changed, the newest counts; by `workload_of`
two pods are told to be of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fairlead.api import names
from fairlead.api.object_names import is_dns_subdomain

_TEMPLATE_HASH: Final = "pod-template-hash"
JOB: Final = "Job"

Strings = Mapping[str, str]
Source = tuple[str, str]
"""Kind and name; the name is "" where the apiserver had yet to make it up."""


def source_text(kind: str, name: str) -> str:
    return f"{kind}/{name}" if name else kind


def source_of(annotations: Strings) -> Source | None:
    """What a size was counted from; None where a user wrote it, or where the text cannot be read."""
    kind, slash, name = annotations.get(names.SIZE_FROM, "").partition("/")
    if not (kind.isascii() and kind.isalnum()) or (slash and not is_dns_subdomain(name)):
        return None
    return kind, name


def workload_of(annotations: Strings, labels: Strings, owner: Source | None) -> str | None:
    """The workload of a pod, whose template may change while it runs; None where that is not known.

    `owner`: its controller's kind and name.
    """
    if labels.get(names.LWS_NAME):
        return f"LeaderWorkerSet/{labels[names.LWS_NAME]}"
    if owner is None:
        return None
    kind, name = owner
    if kind == "ReplicaSet" and _TEMPLATE_HASH in labels:
        return f"Deployment/{name.removesuffix('-' + labels[_TEMPLATE_HASH])}"
    if kind != JOB:
        return f"{kind}/{name}"
    found = source_of(annotations)
    return None if found is None else source_text(*found)
