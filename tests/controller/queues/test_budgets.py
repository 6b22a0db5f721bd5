"""Budgets of queues in the controller: what is counted as spent, when that is decided on, and what status and events say of it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from fractions import Fraction
from math import ceil
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.api.budget import Budget
from fairlead.api.queue import QueueStatus
from fairlead.api.resource_units import in_units
from fairlead.controller import spending, term
from fairlead.controller.report.queue_status import QueueShown, crossed, queue_status, said
from fairlead.controller.report.status_writer import known_fields, merge_patch
from fairlead.controller.spending import (
    ASK_S,
    UNANSWERED_S,
    BudgetNow,
    HeldAmount,
    Said,
    SpendingBudgets,
    Spent,
)
from fairlead.controller.watch import settings
from fairlead.engine.types.plan import FlavorUse, QueueUse
from fairlead.engine.types.reasons import Code
from fairlead.engine.types.settings import BudgetState, FlavorQuota, FlavorSpec, QueueSpec
from fairlead.kube.resources import EVENTS, QUEUES
from fairlead.kube.timestamps import HOUR_US
from fairlead.ui.model.explanations import queue_explanation
from fairlead.ui.model.queues import line
from tests.controller.conftest import NAMESPACE, Bench
from tests.controller.queues.test_queues_and_probes import flavor, seen
from tests.controller.queues.test_queues_and_probes import status as status_of
from tests.support.engine.objects import claim_spec, device_request, gang
from tests.support.engine.world import h100_world

NOON = datetime.fromisoformat("2026-11-23T12:00:00+00:00").timestamp()
MIDNIGHT = NOON + 12 * 3600


class Ledger:
    """What each queue itself has spent, counted until `until`."""

    def __init__(self, **spent: Fraction | int | None) -> None:
        self.of: dict[str, Fraction | int | None] = dict(spent)
        self.until = NOON
        self.asked: list[tuple[str | int, ...]] = []

    def spent(self, queue: str, since_us: int, flavor: str | None) -> Spent | None:
        self.asked.append((queue, since_us) if flavor is None else (queue, since_us, flavor))
        found = self.of.get(queue, 0)
        return None if found is None else Spent(Fraction(found), round(self.until * 1e6))


class Kept:
    """A queue `red` with a budget, and what it is said to hold."""

    def __init__(self, ledger: Ledger, **budget: Any) -> None:
        limit = {} if "flavor" in budget else {"gpuHours": "10"}
        fields = limit | {"per": "day", "onExhausted": "stop"} | budget
        self.budgets: Mapping[str, Budget] = {"red": Budget.model_validate(fields)}
        self.queues = (QueueSpec(name="red"), QueueSpec(name="team", parent="red"), QueueSpec(name="blue"))
        self.said: dict[str, Said] = {}
        self.resources = {"cpu": "cpu", "memory": "memory"}
        self.of = SpendingBudgets(ledger.spent)

    def at(self, now: float, *, gpus: Fraction | int | None = None, flavors: tuple[FlavorUse, ...] = ()) -> BudgetState:
        """What the engine gets; then the queue holds this."""
        self.of.update(self.queues, self.budgets, self.said, now, self.resources)
        state = self.of.with_budgets(self.queues)[0].budget
        if gpus is not None:
            self.of.note([QueueUse(name="red", flavors=flavors, waiting=0, admitted=1, gpus=gpus)], now)
        assert state is not None
        return state

    @property
    def shown(self) -> BudgetNow:
        return self.of.by_queue["red"]


def test_what_is_spent_is_the_ledgers_sum_of_the_queue_and_those_below_and_what_is_held_since() -> None:
    ledger = Ledger(red=1, team=2, blue=100)
    kept = Kept(ledger)
    assert kept.at(NOON, gpus=2).spent == 3
    assert ledger.asked == [("red", round((MIDNIGHT - 86400) * 1e6)), ("team", round((MIDNIGHT - 86400) * 1e6))]
    kept.at(NOON + 1800, gpus=0)  # an hour of one GPU; the ledger has not counted it
    ledger.until = NOON + 900
    ledger.of["team"] = Fraction(5, 2)
    assert kept.at(NOON + 3600).spent == Fraction(7, 2) + Fraction(1, 2), "what it counted does not count twice"


def test_the_moment_of_exhaustion_is_predicted_from_what_is_held() -> None:
    kept = Kept(Ledger(red=9))
    assert kept.at(NOON, gpus=4).exhausts_at is None, "it held nothing"
    state = kept.at(NOON + 1.0)
    assert state.exhausts_at is not None
    assert state.exhausts_at == pytest.approx(NOON + 900, abs=0.002)
    assert state.exhausts_at >= NOON + 900, "not before"
    assert not state.exhausted(NOON + 899)
    then = kept.at(state.exhausts_at)
    assert then.spent is not None
    assert then.spent >= 10
    assert then.exhausted(state.exhausts_at)
    assert kept.shown.percent == 100


def test_the_facts_stay_the_same_objects_while_nothing_changes() -> None:
    kept = Kept(Ledger(red=9))
    first = kept.at(NOON, gpus=1)
    second = kept.at(NOON + 1, gpus=1)
    assert second is not first, "it holds something since"
    assert kept.at(NOON + ASK_S - 1) is second
    before = kept.of.with_budgets(kept.queues)
    assert all(one is other for one, other in zip(before, kept.of.with_budgets(kept.queues), strict=True))
    assert before[2] is kept.queues[2]
    assert kept.of.due == NOON + ASK_S
    assert kept.at(NOON + ASK_S) is not second


def test_the_next_period_begins_with_nothing_spent() -> None:
    ledger = Ledger(red=10)
    kept = Kept(ledger)
    assert kept.at(NOON).exhausted(NOON)
    assert (kept.at(NOON).renews_at, kept.of.due) == (MIDNIGHT, MIDNIGHT)
    ledger.of["red"], ledger.until = 0, MIDNIGHT
    state = kept.at(MIDNIGHT)
    assert (state.spent, state.renews_at) == (0, MIDNIGHT + 86400)
    assert ledger.asked[-2] == ("red", round(MIDNIGHT * 1e6))


def test_what_is_held_across_the_end_of_a_period_counts_in_each_for_its_part() -> None:
    ledger = Ledger()
    kept = Kept(ledger)
    kept.at(NOON, gpus=2)
    ledger.until = MIDNIGHT - 3600
    assert kept.at(MIDNIGHT + 1800).spent == 1


def test_without_a_ledger_nothing_is_known_and_nothing_stops() -> None:
    kept = Kept(Ledger(team=None))
    state = kept.at(NOON, gpus=100)
    later = kept.at(NOON + 3600)
    assert (state.spent, later.spent, later.exhausts_at) == (None, None, None)
    assert kept.shown.percent is None
    assert "not known" in said(kept.shown)


def test_a_ledger_that_did_not_answer_is_asked_again_soon_and_then_more_and_more_seldom() -> None:
    ledger = Ledger(red=None)
    kept = Kept(ledger)
    kept.at(NOON, gpus=1)
    waits, now = [], NOON
    for _ in range(7):
        due = kept.of.due
        assert due is not None
        waits.append(due - now)
        now = due
        kept.at(now)
    assert waits == [min(ASK_S, UNANSWERED_S * 2**times) for times in range(7)]
    ledger.of["red"] = 11
    ledger.until = now + ASK_S
    assert kept.at(now + ASK_S).spent == 11


def test_what_the_status_says_of_the_period_counts_where_the_ledger_does_not_know() -> None:
    kept = Kept(Ledger(red=None))
    kept.said["red"] = Said(Fraction(4), MIDNIGHT - 86400)
    assert kept.at(NOON).spent is None, "that was the last period"
    kept.said["red"] = Said(Fraction(4), MIDNIGHT)
    assert kept.at(NOON + ASK_S, gpus=1).spent == 4
    assert kept.at(NOON + ASK_S + 1800).spent == Fraction(9, 2)


def test_a_budget_that_is_changed_or_removed_is_read_anew() -> None:
    kept = Kept(Ledger(red=9))
    assert kept.at(NOON).limit == 10
    kept.budgets = {"red": replace_budget(kept.budgets["red"], gpuHours="9")}
    assert kept.at(NOON + 1).exhausted(NOON + 1)
    kept.budgets = {}
    kept.of.update(kept.queues, {}, {}, NOON + 2, {})
    assert kept.of.with_budgets(kept.queues) is kept.queues
    assert (kept.of.due, kept.of.by_queue) == (None, {})


def replace_budget(budget: Budget, **fields: Any) -> Budget:
    return Budget.model_validate(budget.model_dump(by_alias=True) | fields)


def test_a_loop_of_parents_ends() -> None:
    kept = Kept(Ledger(red=1, team=1))
    kept.queues = (QueueSpec(name="red", parent="team"), QueueSpec(name="team", parent="red"), kept.queues[2])
    assert kept.at(NOON).spent == 2


def test_a_status_is_not_made_anew_for_each_second() -> None:
    kept = Kept(Ledger(red=1))
    kept.at(NOON, gpus=1)
    first = kept.shown
    kept.at(NOON + 30, gpus=2)
    kept.at(NOON + 31)
    assert kept.shown is first, "less than a thousandth"
    kept.at(NOON + 59.0)
    kept.at(NOON + 120.0)
    assert kept.shown is not first


@given(
    st.lists(st.tuples(st.integers(-5, 3600), st.fractions(0, 8)), min_size=1, max_size=40),
    st.integers(0, 40_000),
    st.integers(0, 40_000),
)
def test_what_is_held_is_the_sum_of_shares_and_times(
    notes: list[tuple[int, Fraction]], start_s: int, length_s: int
) -> None:
    """Against a slow sum, second by second; a clock that goes back adds nothing."""
    held, at_s, rates = HeldAmount(), 0, list[tuple[int, Fraction]]()
    for step, gpus in notes:
        held.note(gpus, (at_s + step) * 1_000_000)
        at_s = max(at_s, at_s + step)
        rates.append((at_s, gpus))
    slow = Fraction(0)
    for (begin, gpus), end in zip(rates, [*(each for each, _ in rates[1:]), 10**9], strict=True):
        slow += gpus * max(0, min(end, start_s + length_s) - max(begin, start_s))
    if notes[0][0] >= 0:
        assert held.between(start_s * 1_000_000, (start_s + length_s) * 1_000_000) == slow / 3600


def test_what_is_held_stays_exact_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spending, "POINTS_MAX", 16)
    held = HeldAmount()
    for number in range(100):
        held.note(number % 7, number * HOUR_US)
    whole = sum(number % 7 for number in range(99))
    assert held.between(0, 99 * HOUR_US) == whole
    assert held.between(99 * HOUR_US, 100 * HOUR_US) == 99 % 7
    assert len(vars(held)["_times"]) <= 17


# -- budgets of a resource of pods ---------------------------------------------------------------------------------

GIB = 2**30


def of_memory(hours: str = "100", **budget: Any) -> dict[str, Any]:
    return {"flavor": "memory", "hours": hours, "per": "day", "onExhausted": "stop"} | budget


def holding(gib: int, *more: FlavorUse) -> tuple[FlavorUse, ...]:
    return (FlavorUse(flavor="memory", used=gib * GIB, demand=0, fair_share=0), *more)


def test_a_budget_of_a_flavor_counts_what_pods_requested_of_it_and_not_gpus() -> None:
    """40 and 20 GiB-hours are in the ledger; 16 GiB for half an hour since."""
    ledger = Ledger(red=40, team=20)
    kept = Kept(ledger, **of_memory())
    cpu = FlavorUse(flavor="cpu", used=96, demand=96, fair_share=0)
    assert kept.at(NOON, gpus=8, flavors=holding(16, cpu)).spent == 60
    assert ledger.asked[0] == ("red", round((MIDNIGHT - 86400) * 1e6), "memory")
    state = kept.at(NOON + 1800, gpus=0)
    assert (state.spent, state.unit) == (60 + 8, "GiB-hours")
    assert kept.at(NOON + 3600).spent == 60 + 8, "it holds none any more"
    assert kept.shown.percent == 68


def test_its_exhaustion_is_predicted_from_what_is_held_of_it() -> None:
    kept = Kept(Ledger(red=92), **of_memory())
    kept.at(NOON, gpus=0, flavors=holding(16))
    state = kept.at(NOON + 1)
    assert state.exhausts_at == pytest.approx(NOON + 1800, abs=0.002)
    assert kept.at(NOON + 1800.01).exhausted(NOON + 1800.01)


def test_another_flavor_begins_anew_and_one_that_is_gone_stops_nothing() -> None:
    kept = Kept(Ledger(red=100), **of_memory())
    assert kept.at(NOON, gpus=0, flavors=holding(1000)).exhausted(NOON)
    kept.budgets = {"red": Budget.model_validate(of_memory("200") | {"flavor": "cpu"})}
    state = kept.at(NOON + 3600)
    assert (state.spent, state.unit, state.exhausts_at) == (100, "cpu-hours", None), "GiB that it held are no cores"
    kept.resources = {}
    state = kept.at(NOON + 3601)
    assert (state.spent, state.exhausted(NOON + 3601)) == (None, False)
    assert "hours of flavor cpu is not known, as that is no Flavor with measure Resource" in said(kept.shown)


def test_what_a_status_says_counts_for_the_flavor_of_which_it_says_it() -> None:
    kept = Kept(Ledger(red=None), **of_memory())
    kept.said = {"red": Said(Fraction(99), MIDNIGHT)}
    assert kept.at(NOON).spent is None, "those were GPU-hours"
    kept = Kept(Ledger(red=None), **of_memory())
    kept.said = {"red": Said(Fraction(99), MIDNIGHT, "memory")}
    assert kept.at(NOON).spent == 99


@pytest.mark.parametrize("seed", range(30))
def test_no_queue_starts_anything_beyond_its_budget_or_holds_more_than_a_limit_of_any_measure(seed: int) -> None:
    """Gangs come and go; what the queue held is summed beside, slowly, and decisions are made at any time, also when it was foretold."""
    random = Random(seed)
    unit = ("gpu", "cpu", "memory")[seed % 3]
    fields = {"gpuHours": "12"} if unit == "gpu" else {"flavor": unit, "hours": "60"}
    budget = Budget.model_validate({"per": "month", "onExhausted": "stop", **fields})
    limits = {"cpu": random.choice((24, 48)), "gpu": 12, "memory": 96 * GIB}
    plain = (QueueSpec(name="a", quotas=tuple(FlavorQuota(flavor=name, limit=most) for name, most in limits.items())),)
    made = h100_world(2)
    pods = [
        FlavorSpec(name=name, device_selector="", measure="Resource", resource_name=name) for name in ("cpu", "memory")
    ]
    made.flavors = (FlavorSpec(name="gpu", device_selector="true"), *pods)
    of = SpendingBudgets(lambda *_: Spent(Fraction(0), round(NOON * 1e6)))
    slow, now, stopped, started, running = Fraction(0), NOON, 0, 0, list[str]()
    for number in range(14):
        of.update(plain, {"a": budget}, {}, now, {"cpu": "cpu", "memory": "memory"})
        (queue,) = made.queues = of.with_budgets(plain)
        made.now, state = now, queue.budget
        assert state is not None
        assert state.exhausted(now) is (slow >= budget.limit)
        if running and random.random() < 0.3:
            made.end(running.pop(0))
        requests = {"cpu": str(random.choice((1, 4, 12))), "memory": f"{random.choice((4, 16))}Gi"}
        body = {"containers": [{"name": "main", "resources": {"requests": requests}}]}
        wanted = gang(f"g{number}", random.randint(1, 3), claim_spec(device_request()), queue="a", pod=body)
        plan = made.decide(wanted)
        assert not (plan.admissions and slow >= budget.limit)
        stopped += any(each.reason.code is Code.BUDGET_EXHAUSTED for each in plan.waiting)
        made.carry_out(plan, [wanted])
        running += [each.id for each in plan.admissions]
        started += len(plan.admissions)
        of.note(plan.queues, now)
        (use,) = plan.queues
        held = {each.flavor: Fraction(each.used) for each in use.flavors}
        assert all(held.get(name, 0) <= most for name, most in limits.items())
        rate = Fraction(use.gpus) if unit == "gpu" else in_units(unit, held.get(unit, Fraction(0)))
        step = random.choice((60, 600, 3600))
        (queue,) = of.with_budgets(plain)
        foretold = queue.budget.exhausts_at if queue.budget is not None else None
        if foretold is not None and random.random() < 0.6:
            step = max(1, ceil(foretold - now))
        slow, now = slow + rate * step / 3600, now + step
    assert started
    assert stopped or slow < budget.limit


def test_status_and_views_name_the_unit() -> None:
    kept = Kept(Ledger(red=80), **of_memory())
    kept.at(NOON)
    status = written(kept.shown)
    assert status["budget"] == {
        "flavor": "memory", "hours": "100", "unit": "GiB-hours", "spent": "80", "percent": 80, "renewsAt": "2026-11-24T00:00:00Z",
    }  # fmt: skip
    assert QueueStatus.model_validate(status).budget is not None
    raw = {"metadata": {"name": "red"}, "spec": {"budget": of_memory()}, "status": status}
    assert line(raw).budget == (
        "80 of 100 GiB-hours of flavor memory a day spent (80 %); renews at 2026-11-24T00:00:00Z"
    )
    (event,) = crossed("red", kept.shown, None)
    assert event[1] == (
        "queue red has spent 80 % of its budget: 80 of 100 GiB-hours of the day, which renew at 2026-11-24T00:00:00Z"
    )
    before = known_fields(written(now_with(4)), QueueStatus)
    assert merge_patch(before, status, QueueStatus, whole=False)["budget"]["gpuHours"] is None


# -- status, conditions, events and views -----------------------------------------------------------------------------


def now_with(spent: int | None, **budget: Any) -> BudgetNow:
    kept = Kept(Ledger(red=spent), warnAt=[50, 80], **budget)
    kept.at(NOON)
    return kept.shown


def written(now: BudgetNow | None, before: dict[str, Any] | None = None) -> dict[str, Any]:
    use = QueueUse(name="red", flavors=(), waiting=0, admitted=0)
    return queue_status(QueueShown(use=use, budget=now), None, before=before or {}, generation=3, now=NOON)


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}


@pytest.mark.parametrize(
    ("spent", "exhausted", "low"),
    [
        (None, ("False", "SpentNotKnown"), ("False", "SpentNotKnown")),
        (4, ("False", "WithinBudget"), ("False", "WithinBudget")),
        (5, ("False", "WithinBudget"), ("True", "Low")),
        (10, ("True", "Exhausted"), ("False", "Exhausted")),
    ],
)
def test_conditions_say_where_a_budget_stands(spent: int | None, exhausted: Any, low: Any) -> None:
    status = written(now_with(spent))
    assert QueueStatus.model_validate(status).budget is not None
    found = conditions(status)
    assert (found["BudgetExhausted"], found["BudgetLow"], found["Ready"]) == (exhausted, low, ("True", "Ready"))
    assert conditions(written(now_with(4), status))["BudgetLow"] == ("False", "WithinBudget")
    removed = written(None, known_fields(status, QueueStatus))
    assert set(conditions(removed)) == {"Ready"}
    assert merge_patch(status, removed, QueueStatus, whole=False)["budget"] is None


def test_status_and_views_say_what_is_spent_and_when_it_renews() -> None:
    status = written(now_with(8))
    assert status["budget"] == {
        "gpuHours": "10", "spent": "8", "percent": 80, "renewsAt": "2026-11-24T00:00:00Z",
    }  # fmt: skip
    spec = {"budget": {"gpuHours": 10, "per": "day", "onExhausted": "stop"}, "waitTarget": "10m"}
    raw = {"metadata": {"name": "red"}, "spec": spec, "status": status}
    said = "8 of 10 GPU-hours a day spent (80 %); renews at 2026-11-24T00:00:00Z"
    assert line(raw).budget == said
    parts = {part.title: part.lines for part in queue_explanation(raw, [], now=NOON).parts}
    assert parts["Budget"] == (f"{said} (12h left)",)
    assert parts["Wait target"] == ("95 of 100 gangs within 10m",)
    exhausted = line({**raw, "status": written(now_with(11))}).budget
    assert exhausted.endswith("2026-11-24T00:00:00Z; until then none of its gangs starts")
    assert "is not known, so nothing is stopped" in line({**raw, "status": written(now_with(None))}).budget
    assert "is not known" in line({**raw, "status": {}}).budget
    assert line({**raw, "spec": {}}).budget == "", "removed, and the controller has not written that yet"


def reasons(now: BudgetNow, before: dict[str, Any] | None) -> list[tuple[str, str]]:
    return [(reason, message[:32]) for reason, message in crossed("red", now, before)]


def test_each_percentage_is_told_once_in_a_period() -> None:
    first = written(now_with(6))["budget"]
    assert reasons(now_with(4), None) == []
    assert reasons(now_with(6), None) == [("BudgetLow", "queue red has spent 50 % of its ")]
    assert reasons(now_with(7), first) == []
    assert reasons(now_with(10), first) == [
        ("BudgetLow", "queue red has spent 80 % of its "), ("BudgetExhausted", "queue red: the 10 GPU-hours of t"),
    ]  # fmt: skip
    assert reasons(now_with(11), written(now_with(10))["budget"]) == []
    last = {**first, "renewsAt": "2026-11-23T00:00:00Z"}
    assert len(reasons(now_with(6), last)) == 1, "another period"
    assert reasons(now_with(None), first) == []


def test_what_a_status_says_is_read_back_and_nonsense_is_not() -> None:
    raw = {"kind": "Queue", "metadata": {"name": "red"}, "spec": {"budget": {"gpuHours": 10, "per": "day"}}}
    read = settings.read([{**raw, "status": {"budget": written(now_with(8))["budget"]}}], [])
    assert read.said == {"red": Said(Fraction(8), MIDNIGHT)}
    assert set(read.budgets) == {"red"}
    for spent, renews in (("x", "2026-11-24T00:00:00Z"), ("1/0", "2026-11-24T00:00:00Z"), ("8", "soon")):
        status = {"budget": {"gpuHours": "10", "spent": spent, "renewsAt": renews}}
        assert settings.read([{**raw, "status": status}], []).said == {}


async def test_a_queue_is_stopped_when_its_budget_is_exhausted_and_goes_on_when_that_is_raised(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is spent comes from a ledger that counted once: the rest, and the moment, are from what the queue holds."""
    began = time.time()
    hours = Fraction(2 * 8, 3600)  # two GPUs, eight seconds

    def spent(queue: str, since_us: int, flavor: str | None) -> Spent:
        return Spent(10 - hours if queue == "red" else Fraction(0), round(began * 1e6))

    monkeypatch.setattr(term, "not_known", spent)
    await flavor(bench)
    spec = {
        "flavors": [{"flavor": "gpu", "deserved": 4}],
        "budget": {"gpuHours": "10", "per": "month", "onExhausted": "stop"},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
    }
    await bench.client.create(QUEUES, {"metadata": {"name": "red"}, "spec": spec})
    await bench.template("two", 2)
    await bench.template("one", 1)
    async with seen(bench, QUEUES) as queues, bench.controller():
        first = await bench.gang("first", 1, template="two")
        await bench.until(lambda: bench.running(first), "the first gang")

        def condition() -> str:
            found = {each["type"]: each["status"] for each in status_of(queues, "red").get("conditions", ())}
            return str(found.get("BudgetExhausted"))

        await bench.until(lambda: condition() == "False", "the condition")
        await bench.until(lambda: condition() == "True", "the exhausted budget", timeout_s=40)
        assert time.time() - began < 30, "not when the ledger is asked again"
        assert status_of(queues, "red")["budget"]["percent"] == 100
        second = await bench.gang("second", 1, template="one")
        await bench.until(lambda: bench.status("second").get("reason") == "BudgetExhausted", "the reason")
        assert bench.running(first), "what runs goes on"
        found = {each["reason"] for each in (await bench.client.list(EVENTS, "default")).items}
        assert found == {"BudgetLow", "BudgetExhausted"}
        raised = {"spec": {"budget": {"gpuHours": "20"}}}
        await bench.client.patch(QUEUES, "red", raised)
        await bench.until(lambda: bench.running(second), "the raised budget")
