"""The members of gangs as the webhook knows them from its watch: after any changes the same as if read afresh."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from fairlead.api import names
from fairlead.kube.store import Change
from fairlead.webhook.cache.trimmed import GangMemberIndex, TrimmedPod
from fairlead.webhook.review.facts import GangMember

GANGS = ("a", "b")


FIRST = {"gang": "a", "size": "2", "phase": "Pending", "owner": "j", "leaves": ""}
PODS = ("p", "q")
"""Of more that say the same, two are told."""
CHANGES = (
    st.tuples(st.just("gang"), st.sampled_from(["", *GANGS]))
    | st.tuples(st.just("size"), st.sampled_from(["2", "3", "none"]))
    | st.tuples(st.just("phase"), st.sampled_from(["Pending", "Running", "Failed"]))
    | st.tuples(st.just("owner"), st.sampled_from(["j", "k"]))
    | st.tuples(st.just("leaves"), st.sampled_from(["", "2026-11-28T00:00:00Z"]))
)


def pod(name: str, said: dict[str, str]) -> TrimmedPod:
    annotations = {names.GANG: said["gang"], names.GANG_SIZE: said["size"]} if said["gang"] else {}
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": said["owner"], "uid": "u", "controller": True}
    metadata: dict[str, Any] = {"name": name, "namespace": "ml", "annotations": annotations, "ownerReferences": [owner]}
    if said["leaves"]:
        metadata["deletionTimestamp"] = said["leaves"]
    return msgspec.convert({"metadata": metadata, "status": {"phase": said["phase"]}}, TrimmedPod)


def seen(index: GangMemberIndex) -> dict[str, set[GangMember]]:
    return {gang: set(index.members(("ml", gang))) for gang in GANGS}


@given(st.lists(st.tuples(st.sampled_from(PODS), CHANGES | st.none()), max_size=12))
def test_after_any_changes_the_members_are_those_of_the_newest_pods(
    changes: list[tuple[str, tuple[str, str] | None]],
) -> None:
    """A change without a field is the end of the pod; the next one creates it again."""
    index, said, newest = GangMemberIndex(), dict[str, dict[str, str]](), dict[str, TrimmedPod]()
    for name, change in changes:
        old, new = newest.pop(name, None), None
        if change is None:
            said.pop(name, None)
        else:
            said[name] = {**said.get(name, FIRST), change[0]: change[1]}
            new = newest[name] = pod(name, said[name])
        if old is not None or new is not None:
            index.update(Change("", name, old, new))
    afresh = GangMemberIndex()
    for each in newest.values():
        afresh.update(Change("", each.metadata.name, None, each))
    assert seen(index) == seen(afresh)
