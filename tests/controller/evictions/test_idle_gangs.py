"""Gangs whose devices are all idle: what is read of the driver's samples, what the gang is told, and what becomes of it."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.api import names
from fairlead.controller.gangs.claims.allocations import results
from fairlead.controller.gangs.conditions import holds_since
from fairlead.controller.gangs.evictions import eviction_marks
from fairlead.controller.gangs.evictions.eviction_marks import Cancel, EvictionMark, Wait
from fairlead.controller.gangs.held import idleness
from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.controller.watch import settings
from fairlead.engine.types.gangs import IdleSpan
from fairlead.engine.types.settings import IdlePolicy
from fairlead.kube import timestamps
from fairlead.kube.client import Client
from fairlead.kube.device_usage import FRESH_S, DeviceUsage, State
from fairlead.kube.resources import QUEUES, RESOURCE_CLAIMS, raw
from tests.controller.conftest import NAMESPACE, Bench
from tests.controller.queues.test_queues_and_probes import flavor
from tests.controller.watch.test_usage_writes import claim, running

NOW = 10_000.0
EVICT = IdlePolicy(for_s=3600.0, grace_s=600.0, then="evict")


def usage(state: State = "Idle", *, since_s: float = 100.0, sampled_at_s: float = NOW) -> DeviceUsage:
    return DeviceUsage(state=state, since_s=since_s, sampled_at_s=sampled_at_s)


def gang_with(said: Any, **changes: Any) -> Gang:
    """Of one pod; `said` is what the driver says of gpu-0."""
    caches = running()
    caches.claims.note(claim(2, said, **changes))
    caches.triggers.gangs(list(caches.gangs) or [("ml", "p")])
    caches.refresh()
    (gang,) = caches.gangs.values()
    return gang


def span(
    said: DeviceUsage | None, *, policy: IdlePolicy = EVICT, annotations: dict[str, str] | None = None, **changes: Any
) -> IdleSpan | None:
    """Of a gang of one pod with one device."""
    gang = gang_with(None if said is None else said.to_json(), **changes)
    for member in gang.members:
        member.pod.metadata.annotations.update(annotations or {})
    return idleness.idle_span(gang, policy, 50.0, NOW)


def test_a_gang_is_idle_while_samples_of_all_its_devices_say_so() -> None:
    assert span(usage()) == IdleSpan(since=100.0, known_until=NOW + FRESH_S, noticed=50.0)


@pytest.mark.parametrize("said", [usage("Busy"), usage("Unknown"), None])
def test_what_is_busy_or_not_known_is_not_idle(said: DeviceUsage | None) -> None:
    assert span(said) is None


@pytest.mark.parametrize(("percent", "since"), [(10, 100.0), (50, 100.0), (5, 700.0), (1, None), (None, None)])
def test_a_queue_may_say_below_which_utilisation_a_device_is_idle(percent: int | None, since: float | None) -> None:
    said = DeviceUsage(state="Busy", since_s=800.0, sampled_at_s=NOW, below=((2.0, 700.0), (10.0, 100.0)))
    found = span(said, policy=replace(EVICT, below_percent=percent))
    assert (None if found is None else found.since) == since


def test_the_notice_says_below_what() -> None:
    (gang,) = running().gangs.values()
    found = idleness.notice(gang, IdleSpan(since=0.0, known_until=NOW), replace(EVICT, below_percent=10), 3600.0)
    assert "its device has been below 10 % since 1970-01-01T00:00:00Z; it is evicted at" in str(found)


def test_one_device_of_which_nothing_is_known_is_enough() -> None:
    devices = [{"request": "gpu", "driver": names.DRIVER, "pool": "n1", "device": f"gpu-{n}"} for n in range(2)]
    assert span(usage(), allocation={"devices": {"results": devices}}) is None
    foreign = {"request": "nic", "driver": "nic.example.com", "pool": "n1", "device": "nic-0"}
    assert span(usage(), allocation={"devices": {"results": [devices[0], foreign]}}) is not None, "others tell nothing"
    admin = {**devices[1], "adminAccess": True}
    assert span(usage(), allocation={"devices": {"results": [devices[0], admin]}}) is not None


ANY = replace(EVICT, devices="Any")
TWO = [{"request": "gpu", "driver": names.DRIVER, "pool": "n1", "device": f"gpu-{n}"} for n in range(2)]


@pytest.mark.parametrize("said", [None, usage("Busy", sampled_at_s=NOW)])
def test_where_one_device_is_enough_one_that_is_kept_busy_exempts_no_gang(said: DeviceUsage | None) -> None:
    assert span(usage(), policy=ANY, allocation={"devices": {"results": TWO}}) == IdleSpan(
        since=100.0, known_until=NOW + FRESH_S, noticed=50.0
    )
    assert span(said, policy=ANY, allocation={"devices": {"results": TWO}}) is None
    assert span(usage(), allocation={"devices": {"results": TWO}}) is None, "unless the queue says so"
    gang = gang_with(None, allocation={"devices": {"results": TWO}})
    told = idleness.notice(gang, IdleSpan(since=0.0, known_until=NOW), ANY, 3600.0)
    assert "one of its 2 devices has been idle since" in str(told)


@pytest.mark.parametrize("policy", [EVICT, ANY])
@pytest.mark.parametrize("ahead", [301.0, 3.2e9, 2.5e11])
def test_what_a_driver_says_of_the_future_is_not_believed(policy: IdlePolicy, ahead: float) -> None:
    """It would count as new for as long, also once the driver is gone."""
    assert span(usage(sampled_at_s=NOW + ahead), policy=policy) is None
    assert span(usage(sampled_at_s=NOW + 299), policy=policy) is not None


def test_no_device_is_idle_for_longer_than_its_claim_exists() -> None:
    created = {"creationTimestamp": timestamps.seconds(9000.0)}
    found = span(usage(since_s=-6.2e10), metadata=created)
    assert found is not None
    assert found.since == 9000.0


@pytest.mark.parametrize(("value", "idle"), [("true", False), ("false", True), ("yes", True)])
def test_a_pod_may_say_that_it_needs_them_all_the_same(value: str, idle: bool) -> None:
    assert (span(usage(), annotations={names.KEEP_IDLE: value}) is not None) == idle


@pytest.mark.parametrize(
    ("of", "policy", "now", "at"),
    [
        (IdleSpan(since=0.0, known_until=NOW), EVICT, 3599.0, None),
        (IdleSpan(since=0.0, known_until=NOW), EVICT, 3600.0, 4200.0),
        (IdleSpan(since=0.0, known_until=NOW), EVICT, 5000.0, 5600.0),
        (IdleSpan(since=0.0, known_until=NOW, noticed=3601.0), EVICT, 5000.0, 4201.0),
        (IdleSpan(since=0.0, known_until=4000.0), EVICT, 4000.0, None),
        (IdleSpan(since=0.0, known_until=NOW), replace(EVICT, then="nothing"), 5000.0, None),
    ],
)
def test_it_is_told_when_what_follows(of: IdleSpan, policy: IdlePolicy, now: float, at: float | None) -> None:
    (gang,) = running().gangs.values()
    found = idleness.notice(gang, of, policy, now)
    assert (None if found is None else found.at) == at
    if found is not None:
        assert (
            f"its device has been idle since 1970-01-01T00:00:00Z; it is evicted at {timestamps.seconds(found.at)}"
            in str(found)
        )
        assert 'the annotation fairlead.dev/keep-idle: "true"' in str(found)


def test_it_is_looked_at_when_it_is_to_be_told_when_it_was_and_when_that_is_over() -> None:
    fresh = IdleSpan(since=0.0, known_until=NOW)
    told = replace(fresh, noticed=3600.0)
    times = [idleness.looked_at_again(*each) for each in (
        (fresh, EVICT, 10.0), (fresh, EVICT, 3600.0), (told, EVICT, 3600.0), (told, EVICT, 4200.0), (told, EVICT, NOW),
        (fresh, replace(EVICT, then="nothing"), 10.0),
    )]  # fmt: skip
    assert times == [3600.0, 3600.0 + idleness.UNTOLD_S, 4200.0, NOW, None, None]
    assert [idleness.follows(told, EVICT, now) for now in (4199.0, 4200.0, NOW)] == [False, True, False]
    assert not idleness.follows(fresh, EVICT, 5000.0)
    assert not idleness.follows(told, replace(EVICT, then="warn"), 5000.0)


@pytest.mark.parametrize(
    "conditions",
    [[], [{"type": "Idle", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}], [{"type": "Idle", "status": "True"}],
     [{"type": "Idle", "status": "True", "lastTransitionTime": "soon"}]],
)  # fmt: skip
def test_what_does_not_say_when_it_was_told_says_nothing(conditions: list[dict[str, str]]) -> None:
    assert holds_since({"status": {"conditions": conditions}}, idleness.CONDITION) is None
    assert holds_since(None, idleness.CONDITION) is None


def test_a_queue_below_has_the_policy_of_the_one_above() -> None:
    idle = {"below": "10%", "for": "30m", "then": "evict"}
    known = settings.read(
        [
            {"kind": "Queue", "metadata": {"name": name}, "spec": spec}
            for name, spec in (("top", {"idle": idle}), ("a", {"parent": "top"}), ("b", {"parent": "top", "idle": {"then": "nothing"}}), ("c", {}))
        ],
        [],
    )  # fmt: skip
    assert known.any_idle
    of = {name: [each.idle for each in known.path(name, {}) if each.idle] for name in ("a", "b", "c", None, "gone")}
    assert of["a"] == [IdlePolicy(for_s=1800.0, grace_s=600.0, then="evict", below_percent=10)]
    assert of["b"][0].then == "nothing"
    assert of["c"] == of[None] == of["gone"] == []


def test_an_eviction_is_cancelled_when_the_gang_is_busy_again() -> None:
    caches = running()
    (gang,) = caches.gangs.values()
    mark = EvictionMark(kind="Idle", at=NOW, whole=True)
    assert str(mark) == "stopped as idle"
    gang.members[0].pod.metadata.annotations.update(mark.annotations())
    gang = dataclasses.replace(gang, decisions=(eviction_marks.decision(mark),))

    def step(*, idle: bool) -> object:
        return eviction_marks.next_step(
            gang, now=NOW - 1, still_waits=lambda _: True, idle=lambda: idle, refusal=lambda _: ""
        )

    assert isinstance(step(idle=True), Wait)
    assert isinstance(step(idle=False), Cancel)


# -- on the sandbox -----------------------------------------------------------------------------------------------------


async def say(bench: Bench, pod: str, state: State, since_s: float) -> None:
    """As the driver writes it, of all devices of the pod's claims."""
    for each in bench.allocated():
        if not any(user.name == pod for user in each.status.reserved_for):
            continue
        data = DeviceUsage(state=state, since_s=since_s, sampled_at_s=time.time()).to_json()
        devices = [
            {"driver": result.driver, "pool": result.pool, "device": result.device, "data": data}
            for result in results(each)
        ]
        extra = {"authentication.kubernetes.io/node-name": (results(each)[0].pool,)}
        async with Client.connect(bench.cluster.kubeconfig(names.DRIVER_USER, extra=extra)) as client:
            patch = {"status": {"devices": devices}}
            await client.patch(
                raw(RESOURCE_CLAIMS), each.metadata.name, patch, namespace=NAMESPACE, subresource="status"
            )


def idle_condition(bench: Bench, gang: str) -> tuple[str, str]:
    found = {each["type"]: (each["status"], each["message"]) for each in bench.status(gang).get("conditions", ())}
    return found.get("Idle", ("", ""))


async def test_an_idle_gang_is_told_and_evicted_and_one_that_is_busy_or_exempt_stays(bench: Bench) -> None:
    await flavor(bench)
    spec = {
        "flavors": [{"flavor": "gpu", "deserved": 4}],
        "idle": {"for": "1s", "grace": "3s", "then": "evict"},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
    }
    await bench.client.create(QUEUES, {"metadata": {"name": "red"}, "spec": spec})
    await bench.template("one", 1)
    async with bench.controller():
        lazy = await bench.gang("lazy", 2, template="one")
        half = await bench.gang("half", 2, template="one")
        kept = await bench.gang("kept", 1, template="one", annotations={names.KEEP_IDLE: "true"})
        await bench.until(lambda: bench.running([*lazy, *half, *kept]), "all of them")
        began = time.time()
        for pod in (*lazy, half[0], *kept):
            await say(bench, pod, "Idle", began - 100)
        await say(bench, half[1], "Busy", began - 100)
        await bench.until(lambda: idle_condition(bench, "lazy")[0] == "True", "the condition")
        assert "all its 2 devices have been idle since" in idle_condition(bench, "lazy")[1]
        assert "; it is evicted at 20" in idle_condition(bench, "lazy")[1]
        assert bench.running(lazy), "its grace has just begun"
        await bench.event("lazy-0", "DevicesIdle: all its 2 devices have been idle")
        await bench.until(lambda: all(bench.get(pod) is None for pod in lazy), "the eviction")
        assert time.time() >= began + 3
        await bench.event("lazy", "Evicted: 2 pods evicted: stopped as idle: all its devices are idle since")
        assert bench.running([*half, *kept])
        assert (idle_condition(bench, "half"), idle_condition(bench, "kept")) == (("", ""), ("", ""))
