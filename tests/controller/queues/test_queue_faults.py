"""Each way in which Queues and Flavors can be wrong is reported twice: when the object is written, and in its Ready condition.

One table for both, so that neither side knows of a fault that the other does not. The webhook is asked about the last object of
a case, beside the others; the controller has all of them, and the queues that are fine go on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from fairlead.api import names
from fairlead.api.flavor import Flavor
from fairlead.api.queue import Queue
from fairlead.api.queues import OPEN
from fairlead.controller.report.queue_status import QueueShown, flavor_status, queue_status
from fairlead.controller.watch import settings
from fairlead.engine.types.plan import QueueUse
from fairlead.kube import resource
from fairlead.webhook.handlers import dispatch
from fairlead.webhook.objects.device_models import device_models
from tests.support.engine.objects import claim_spec, device_request, gang, gpu, mig_gpu
from tests.support.engine.world import World
from tests.support.webhook import facts, review

Json = dict[str, Any]
HERE = "NVIDIA H100 80GB HBM3"


def made(kind: str, name: str, **spec: Any) -> Json:
    return {
        "apiVersion": names.API_VERSION,
        "kind": kind,
        "metadata": {"name": name, "uid": f"uid-{name}", "generation": 1},
        "spec": spec,
    }


def queue(name: str, parent: str | None = None, *, selects: Json | None = None, **deserved: int) -> Json:
    spec: Json = {"flavors": [{"flavor": flavor, "deserved": amount} for flavor, amount in deserved.items()]}
    if parent is not None:
        spec["parent"] = parent
    if selects is not None:
        spec["namespaceSelector"] = selects
    return made("Queue", name, **spec)


def flavor(name: str, selector: str = f'device.driver == "{names.DRIVER}"', **more: Any) -> Json:
    return made("Flavor", name, deviceSelector=selector, **more)


def product(text: str) -> str:
    return f'device.attributes["{names.DRIVER}"].productName == "{text}"'


def scheduled(start: str, **fields: Any) -> Json:
    entry = {"name": "nights", "start": start, "for": "11h", "flavors": [{"flavor": "gpu", **fields}]}
    return made("Queue", "team", schedule=[entry])


GPU = flavor("gpu")


@dataclass(frozen=True)
class Fault:
    """`wrong`: name of the object that the condition is of, if it is not the last. `refused`: the webhook says no."""

    what: str
    objects: tuple[Json, ...]
    reason: str
    condition: str
    admission: str
    refused: bool = False
    wrong: str = ""


FAULTS = [
    Fault(
        "a parent that does not exist",
        (queue("team", "nobody"),),
        "UnknownParent",
        "there is no Queue 'nobody'",
        "Queue 'nobody' does not exist; until it does this queue counts as a root",
    ),
    Fault(
        "a loop of two",
        (queue("a", "b"), queue("b", "a")),
        "ParentCycle",
        "'a' makes a cycle",
        "'a' closes a loop: b → a → b",
        refused=True,
    ),
    Fault(
        "a loop of three",
        (queue("a", "c"), queue("b", "a"), queue("c", "b")),
        "ParentCycle",
        "'b' makes a cycle",
        "closes a loop: c → b → a → c",
        refused=True,
    ),
    Fault(
        "a queue that is its own parent",
        (queue("a", "a"),),
        "Unreadable",
        "is the queue itself",
        "is the queue itself",
        refused=True,
    ),
    Fault(
        "a child that deserves more than its parent",
        (GPU, queue("org", gpu=2), queue("team", "org", gpu=3)),
        "ChildrenDeserveMore",
        "the queues below it deserve 3 of gpu, it only 2",
        "the queues below org deserve 3 of gpu, it only 2",
        wrong="org",
    ),
    Fault(
        "children that deserve more together",
        (GPU, queue("org", gpu=4), queue("a", "org", gpu=3), queue("b", "org", gpu=2)),
        "ChildrenDeserveMore",
        "the queues below it deserve 5 of gpu, it only 4",
        "the queues below org deserve 5 of gpu, it only 4",
        wrong="org",
    ),
    Fault(
        "grandchildren that deserve more, below a queue that says nothing",
        (GPU, queue("org", gpu=4), queue("dep", "org"), queue("a", "dep", gpu=3), queue("b", "dep", gpu=2)),
        "ChildrenDeserveMore",
        "the queues below it deserve 5 of gpu, it only 4",
        "the queues below org deserve 5 of gpu, it only 4",
        wrong="org",
    ),
    Fault(
        "a parent that is given less than its children have",
        (GPU, queue("a", "org", gpu=3), queue("org", gpu=2)),
        "ChildrenDeserveMore",
        "the queues below it deserve 3 of gpu, it only 2",
        "the queues below org deserve 3 of gpu, it only 2",
    ),
    Fault(
        "two leaves for one namespace",
        (queue("a", selects={"matchLabels": {"team": "ml"}}), queue("b", selects={"matchLabels": {"site": "x"}})),
        "SelectorsOverlap",
        "Queue a selects namespace ml-prod too; pods there that name no queue go to a",
        "Queue a may take the same namespaces",
    ),
    Fault(
        "a leaf for every namespace beside others",
        (queue("a", selects={"matchLabels": {"team": "ml"}}), queue("z", selects={})),
        "SelectorsOverlap",
        "Queue a selects namespace ml-prod too; pods there that name no queue go to a",
        "pods that name no queue go to a",
    ),
    Fault(
        "two leaves that may take one namespace, while none has the labels of both",
        (queue("a", selects={"matchLabels": {"team": "ml"}}), queue("b", selects={"matchLabels": {"site": "y"}})),
        "Ready",
        "the queue takes gangs",
        "Queue a may take the same namespaces",
    ),
    Fault(
        "quota of a flavor that does not exist",
        (queue("team", h100=3),),
        "UnknownFlavor",
        "Flavor 'h100' does not exist",
        "Flavor 'h100' does not exist",
    ),
    Fault(
        "a flavor of hardware that is not there",
        (flavor("b200", product("NVIDIA B200")),),
        "SelectsNothing",
        "selects none of the 16 devices",
        "selects no device of the cluster; the nearest is 7g.80gb of NVIDIA A100-SXM4-80GB (n0/gpu-1-mig-7g-80gb-0), which fails "
        f"{product('NVIDIA B200')}",
    ),
    Fault(
        "a flavor by a capacity that no device has",
        (flavor("mem", measure="Capacity", capacityName="hbm"),),
        "SelectsNothing",
        "none of the 16 devices of the cluster with a capacity 'hbm'",
        "no device that the flavor selects has the capacity 'hbm'",
    ),
    Fault(
        "a flavor that does not compile",
        (flavor("bad", "device.driver = 'x'"),),
        "InvalidSelector",
        "spec.deviceSelector",
        "Flavor bad: spec.deviceSelector",
        refused=True,
    ),
    Fault(
        "an unknown field",
        (made("Queue", "team", parnt="org"),),
        "Ready",  # an older controller reads what a newer one's users wrote
        "the queue takes gangs",
        "spec.parnt: unknown field; did you mean parent?",
        refused=True,
    ),
    Fault(
        "a limit below what is deserved",
        (GPU, made("Queue", "team", flavors=[{"flavor": "gpu", "deserved": 4, "limit": 2}])),
        "Unreadable",
        "limit 2 is below deserved 4",
        "limit 2 is below deserved 4",
        refused=True,
    ),
    Fault(
        "a schedule that never comes",
        (GPU, scheduled("0 0 30 2 *", limit=8)),
        "Unreadable",
        "'0 0 30 2 *' is no cron expression, or never comes",
        "spec.schedule[0].start: '0 0 30 2 *' is no cron expression, or never comes",
        refused=True,
    ),
    Fault(
        "a schedule with a limit below what is deserved, as written",
        (GPU, scheduled("0 20 * * *", deserved="2k", limit="1k")),
        "Ready",
        "the queue takes gangs",
        "spec.schedule[0].flavors[0].limit: 1k is below deserved 2k: raise limit or lower deserved (while nights is in force)",
        refused=True,
    ),
    Fault(
        "a schedule with a flavor that does not exist",
        (made("Queue", "team", schedule=scheduled("0 20 * * *", deserved=1)["spec"]["schedule"]),),
        "UnknownFlavor",
        "spec.schedule[0].flavors[0].flavor: Flavor 'gpu' does not exist; until it does nothing counts",
        "spec.schedule[0].flavors[0].flavor: Flavor 'gpu' does not exist; until it does nothing counts",
    ),
    Fault(
        "a selector without values",
        (queue("team", selects={"matchExpressions": [{"key": "team", "operator": "In"}]}),),
        "Unreadable",
        "In needs at least one value; it is left out",
        "In needs at least one value",
        refused=True,
    ),
]
CASES = [pytest.param(fault, id=fault.what) for fault in FAULTS]


def cluster() -> World:
    world = World()
    whole, counters = mig_gpu(1)
    world.add_node("n0", [gpu(0, product=HERE), *whole], counters=[counters])
    return world


def objects_of(fault: Fault, kind: str) -> list[Json]:
    return [found for found in fault.objects if found["kind"] == kind]


def ready(fault: Fault) -> dict[str, Json]:
    """Ready of each object, as the controller would write it."""
    queues, flavors = objects_of(fault, "Queue"), [*objects_of(fault, "Flavor"), flavor("zz-fine")]
    namespaces = [("ml-prod", {"team": "ml", "site": "x"}), ("other", {})]
    known = settings.read([*queues, queue("fine")], flavors, namespaces)
    world = cluster()
    world.queues, world.flavors = known.queues, known.flavors
    job = gang("job", 1, claim_spec(device_request()), queue="fine")
    plan = world.decide(job)
    assert [entry.name for entry in plan.admissions] == ["job"], "what is fine goes on"
    told: dict[str, Json] = {}
    for body in [*queues, *flavors]:
        kind, name = body["kind"], body["metadata"]["name"]
        problems = [each for each in (*known.problems, *plan.problems) if (each.kind, each.name) == (kind, name)]
        if kind == "Queue":
            use = QueueUse(name=name, flavors=(), waiting=0, admitted=0)
            status = queue_status(QueueShown(use=use, problems=tuple(problems)), None, before={}, generation=1, now=0.0)
        else:
            total = next((each for each in plan.flavors if each.flavor == name), None)
            status = flavor_status(total, problems, before={}, generation=1, now=0.0)
        (told[name],) = [each for each in status["conditions"] if each["type"] == "Ready"]
    return told


@pytest.mark.parametrize("fault", CASES)
def test_the_fault_is_in_the_condition_of_the_object(fault: Fault):
    told = ready(fault)
    wrong = told[fault.wrong or fault.objects[-1]["metadata"]["name"]]
    assert (wrong["reason"], wrong["status"]) == (fault.reason, str(fault.reason == "Ready"))
    assert fault.condition in wrong["message"]


@pytest.mark.parametrize("fault", CASES)
def test_the_fault_is_in_the_answer_to_the_write_of_the_object(fault: Fault):
    world = cluster()
    models = [
        found
        for body in msgspec.convert([*world.slice_json.values()], list[resource.ResourceSlice])
        for found in device_models(body.spec.driver, body.spec.node_name or "", body.spec.devices)
    ]
    *others, last = fault.objects
    known = facts(
        queues={body["metadata"]["name"]: Queue.stored(body) for body in others if body["kind"] == "Queue"},
        flavors={body["metadata"]["name"]: Flavor.stored(body) for body in others if body["kind"] == "Flavor"},
        device_models=tuple(dict.fromkeys(models)),
    )
    verdict = dispatch.validate(review(last), known)
    assert verdict.allowed is not fault.refused
    said = [verdict.message] if fault.refused else [text for text in verdict.warnings if not text.endswith(OPEN)]
    assert len(said) == 1, said
    assert fault.admission in said[0]


def test_objects_without_a_fault_get_no_warning():
    fine = Fault(
        "",
        (
            GPU,
            flavor("h100", product(HERE), measure="Share"),  # two of one measure would overlap
            flavor("mem", product(HERE), measure="Capacity", capacityName="memory"),
            queue("org", gpu=4, selects={}),
            queue("a", "org", gpu=2, selects={"matchLabels": {"team": "a"}}),
            queue("b", "org", gpu=2, h100=1, selects={"matchLabels": {"team": "b"}}),
        ),
        "Ready",
        "",
        "",
    )
    assert {each["reason"] for each in ready(fine).values()} == {"Ready"}
    world = cluster()
    slices = msgspec.convert([*world.slice_json.values()], list[resource.ResourceSlice])
    models = [found for body in slices for found in device_models(body.spec.driver, "n0", body.spec.devices)]
    for body in fine.objects:
        known = facts(
            queues={e["metadata"]["name"]: Queue.stored(e) for e in fine.objects if e["kind"] == "Queue"},
            flavors={e["metadata"]["name"]: Flavor.stored(e) for e in fine.objects if e["kind"] == "Flavor"},
            device_models=tuple(dict.fromkeys(models)),
        )
        verdict = dispatch.validate(review(body, operation="UPDATE", old=body), known)
        assert (verdict.allowed, verdict.warnings) == (True, ()), body["metadata"]["name"]
