"""Fields of a status that this version does not know, or that the apiserver adds: kept by its writes, and no reason for one."""

import copy
from typing import Any

from fairlead.api.crds import structural_schema
from fairlead.api.gang import Gang, GangStatus
from fairlead.api.queue import QueueStatus
from fairlead.controller.report.status_writer import as_stored, known_fields, merge_patch
from fairlead.sandbox.apiserver.crds.values import default
from fairlead.sandbox.apiserver.patches.jsonpatch import merge as applied

Json = dict[str, Any]


def test_what_is_compared_has_no_unknown_field_at_any_depth() -> None:
    stored = {
        "phase": "Waiting", "later": 1, "why": {"message": "m", "later": 2, "holders": [{"gang": "g", "later": 3}]},
        "conditions": [{"type": "Admitted", "status": "True", "later": 4}], "nodes": ["n"],
    }  # fmt: skip
    assert known_fields(stored, GangStatus) == {
        "phase": "Waiting", "why": {"message": "m", "holders": [{"gang": "g"}]},
        "conditions": [{"type": "Admitted", "status": "True"}], "nodes": ["n"],
    }  # fmt: skip


def test_a_status_is_replaced_but_for_what_is_not_known() -> None:
    stored = {
        "phase": "Waiting", "position": 3, "later": 1, "why": {"message": "m", "advice": "a", "later": 2},
        "conditions": [{"type": "Admitted", "status": "False", "later": 4}, {"type": "Evicting", "later": 5}],
    }  # fmt: skip
    status = {
        "phase": "Waiting", "why": {"message": "n"},
        "conditions": [{"type": "Running", "status": "False"}, {"type": "Admitted", "status": "True"}],
    }  # fmt: skip
    assert applied(stored, merge_patch(stored, status, GangStatus, whole=True)) == {
        "phase": "Waiting", "later": 1, "why": {"message": "n", "later": 2},
        "conditions": [
            {"type": "Running", "status": "False"}, {"type": "Admitted", "status": "True", "later": 4},
        ],
    }  # fmt: skip


def test_a_part_of_a_status_leaves_the_other_fields() -> None:
    stored = {"waiting": 1, "evictions": ["t"], "later": 1, "usage": [{"flavor": "a", "allocated": 1, "later": 2}]}
    patch = merge_patch(stored, {"waiting": 2, "usage": [{"flavor": "a", "allocated": 3}]}, QueueStatus, whole=False)
    assert applied(stored, patch) == {
        "waiting": 2, "evictions": ["t"], "later": 1, "usage": [{"flavor": "a", "allocated": 3, "later": 2}],
    }  # fmt: skip
    assert "later" not in patch


def test_the_first_status_is_written_as_it_is() -> None:
    status: Json = {"phase": "Waiting", "why": {"message": "n"}, "conditions": [{"type": "Running", "status": "False"}]}
    assert merge_patch({}, status, GangStatus, whole=True) == status


def test_why_is_removed_when_nothing_is_pending() -> None:
    assert merge_patch({"why": {"message": "m", "later": 1}}, {"phase": "Running"}, GangStatus, whole=True) == {
        "phase": "Running", "why": None,
    }  # fmt: skip


def test_a_status_is_completed_as_the_apiserver_completes_it() -> None:
    status: Json = {
        "members": 1, "ready": 0, "phase": "Waiting", "why": {"holders": [{}]}, "forecast": {}, "nodesAwaited": {},
        "placement": [{"level": "rack", "domains": 2}], "lastEviction": {"what": "w", "refused": [{"node": "n"}]},
        "evictions": [{}], "conditions": [{"type": "Admitted", "status": "True"}], "nodes": ["n"],
    }  # fmt: skip
    stored = copy.deepcopy({"status": status})
    default(stored, structural_schema(Gang))
    assert stored["status"] != status
    assert as_stored(status, GangStatus) == stored["status"]
