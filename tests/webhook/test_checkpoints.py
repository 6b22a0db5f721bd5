"""What a workload writes on its running pods of moves and checkpoints: it may change, and must be readable."""

from __future__ import annotations

import copy

import pytest

from fairlead.api import names
from fairlead.webhook.handlers import dispatch
from fairlead.webhook.review.verdict import Verdict
from tests.support.webhook import admitted, facts, review

from .test_pods import pod


def updated(key: str, before: str | None, after: str | None) -> Verdict:
    known = facts()
    stored, _ = admitted(pod(), known)
    old, new = copy.deepcopy(stored), copy.deepcopy(stored)
    for version, value in ((old, before), (new, after)):
        if value is not None:
            version["metadata"].setdefault("annotations", {})[key] = value
    return dispatch.validate(review(new, operation="UPDATE", old=old), known)


@pytest.mark.parametrize(
    ("key", "before", "after"),
    [
        (names.CHECKPOINTED_AT, None, "2026-11-21T01:50:31Z"),
        (names.CHECKPOINTED_AT, "2026-11-21T01:50:31Z", "2026-11-21T02:50:31.5+01:00"),
        (names.CHECKPOINTED_AT, "2026-11-21T01:50:31Z", None),
        (names.MOVABLE, "true", "false"),
        (names.MOVABLE, "nonsense", "nonsense"),  # it was there before the webhook was
    ],
)
def test_it_may_change_while_the_pod_runs(key: str, before: str | None, after: str | None) -> None:
    assert updated(key, before, after).allowed


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (names.CHECKPOINTED_AT, "1795225831", "is no time: write RFC 3339"),
        (names.MOVABLE, "True", "is neither 'true' nor 'false'"),
    ],
)
def test_what_cannot_be_read_is_refused(key: str, value: str, message: str) -> None:
    verdict = updated(key, None, value)
    assert not verdict.allowed
    assert f"Pod ml/train-0: metadata.annotations[{key}]: {value!r} {message}" in verdict.message


def test_only_the_controller_asks_for_a_checkpoint() -> None:
    assert not updated(names.CHECKPOINT_BY, None, "2026-11-21T01:50:31Z").allowed
