"""A gang that cannot be computed, whatever the cause: it is named, and all others are decided on and have their forecasts."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.engine.explain.explainer import Explainer
from fairlead.engine.forecast.forecast import forecast
from fairlead.engine.forecast.pending_window import Kinds
from fairlead.engine.placement.shapes import Shapes
from fairlead.engine.plan import pending
from fairlead.engine.plan.decide import decide
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.reasons import Code
from tests.engine.forecast.test_forecast import NOW, full_world, whole_nodes
from tests.engine.forecast.test_what_if import TIMES
from tests.support.engine.objects import claim_spec, device_request, gang
from tests.support.engine.world import h100_world

ONE = claim_spec(device_request())


def failing(monkeypatch: pytest.MonkeyPatch, where: Any, name: str) -> None:
    """That function raises for gangs named bad."""
    true = getattr(where, name)

    def broken(*arguments: Any, **more: Any) -> Any:
        if any(isinstance(each, GangRequest) and each.name == "bad" for each in arguments):
            raise TypeError("unhashable type: 'dict'")
        return true(*arguments, **more)

    monkeypatch.setattr(where, name, broken)


@pytest.mark.parametrize(("where", "name"), [(Shapes, "units"), (pending, "_kinds")])
def test_what_cannot_be_compiled_waits_and_the_others_start(monkeypatch: pytest.MonkeyPatch, where: Any, name: str):
    failing(monkeypatch, where, name)
    plan = decide(h100_world(1).snapshot(gang("a", 1, ONE), gang("bad", 1, ONE), gang("c", 1, ONE)), 0.0)
    assert {"a", "c"} <= {each.name for each in plan.admissions}
    if where is Shapes:
        assert plan.failures == (("ml/bad", "TypeError: unhashable type: 'dict'"),)
        (bad,) = plan.waiting
        assert bad.reason.code is Code.INVALID
        assert "cannot be computed (TypeError: unhashable type: 'dict')" in str(bad.reason)


def test_what_cannot_be_explained_is_named_and_the_others_are_explained(monkeypatch: pytest.MonkeyPatch):
    failing(monkeypatch, Explainer, "explain")
    plan = decide(full_world(1).snapshot(gang("bad", 1, ONE), gang("c", 1, claim_spec(device_request(2)))), NOW)
    assert {each.name: each.reason.code for each in plan.waiting} == {"bad": Code.INVALID, "c": Code.NO_DEVICES}
    assert [name for name, _ in plan.failures] == ["ml/bad"]


def test_what_cannot_be_foretold_is_named_and_the_others_have_forecasts(monkeypatch: pytest.MonkeyPatch):
    failing(monkeypatch, Kinds, "of")
    found = forecast(full_world(1).snapshot(whole_nodes("a"), whole_nodes("bad")), NOW, TIMES, seed=1, samples=2)
    assert found.failures == {"ml/bad": "TypeError: unhashable type: 'dict'"}
    assert found.gangs["ml/a"].p50 is not None
    assert found.gangs["ml/bad"].because == "no forecast: it cannot be computed"
