"""Each way in which Queues and Flavors can be wrong is reported twice: when the object is written, and in its Ready condition.

One table for both (`queue_faults.yaml`), so that neither side knows of a fault that the other does not. The webhook is asked about the
last object of a case, beside the others; the controller has all of them, and the queues that are fine go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
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
from fairlead.webhook.review.verdict import Verdict
from tests.support import quick_yaml
from tests.support.engine.objects import claim_spec, device_request, gang, gpu, mig_gpu
from tests.support.engine.world import World
from tests.support.webhook import facts, review

Json = dict[str, Any]
HERE = "NVIDIA H100 80GB HBM3"
FAULTS: list[Json] = quick_yaml.load((Path(__file__).parent / "queue_faults.yaml").read_text(encoding="utf-8"))
CASES = pytest.mark.parametrize("fault", FAULTS, ids=[each["what"] for each in FAULTS])


def made(kind: str, name: str, **spec: Any) -> Json:
    meta = {"name": name, "uid": f"uid-{name}", "generation": 1}
    return {"apiVersion": names.API_VERSION, "kind": kind, "metadata": meta, "spec": spec}


def objects_of(fault: Json) -> list[Json]:
    return [made(kind, **spec) for each in fault["objects"] for kind, spec in each.items()]


def cluster() -> World:
    world = World()
    whole, counters = mig_gpu(1)
    world.add_node("n0", [gpu(0, product=HERE), *whole], counters=[counters])
    return world


def ready(objects: Sequence[Json]) -> dict[str, Json]:
    """Ready of each object, as the controller would write it."""
    selector = f'device.driver == "{names.DRIVER}"'
    queues = [each for each in objects if each["kind"] == "Queue"]
    flavors = [each for each in objects if each["kind"] == "Flavor"]
    flavors.append(made("Flavor", "zz-fine", deviceSelector=selector))
    namespaces = [("ml-prod", {"team": "ml", "site": "x"}), ("other", {})]
    known = settings.read([*queues, made("Queue", "fine", flavors=[])], flavors, namespaces)
    world = cluster()
    world.queues, world.flavors = known.queues, known.flavors
    plan = world.decide(gang("job", 1, claim_spec(device_request()), queue="fine"))
    assert [entry.name for entry in plan.admissions] == ["job"], "what is fine goes on"
    told: dict[str, Json] = {}
    for body in [*queues, *flavors]:
        kind, name = body["kind"], body["metadata"]["name"]
        problems = tuple(each for each in (*known.problems, *plan.problems) if (each.kind, each.name) == (kind, name))
        if kind == "Queue":
            use = QueueUse(name=name, flavors=(), waiting=0, admitted=0)
            status = queue_status(QueueShown(use=use, problems=problems), None, before={}, generation=1, now=0.0)
        else:
            total = next((each for each in plan.flavors if each.flavor == name), None)
            status = flavor_status(total, problems, before={}, generation=1, now=0.0)
        (told[name],) = [each for each in status["conditions"] if each["type"] == "Ready"]
    return told


def judged(body: Json, others: Sequence[Json], **more: Any) -> Verdict:
    """What the webhook answers to a write of the object beside the others."""
    slices = msgspec.convert([*cluster().slice_json.values()], list[resource.ResourceSlice])
    models = [found for each in slices for found in device_models(each.spec.driver, "n0", each.spec.devices)]
    known = facts(
        queues={each["metadata"]["name"]: Queue.stored(each) for each in others if each["kind"] == "Queue"},
        flavors={each["metadata"]["name"]: Flavor.stored(each) for each in others if each["kind"] == "Flavor"},
        device_models=tuple(dict.fromkeys(models)),
    )
    return dispatch.validate(review(body, **more), known)


@CASES
def test_the_fault_is_in_the_condition_of_the_object(fault: Json):
    objects = objects_of(fault)
    wrong = ready(objects)[fault.get("wrong", objects[-1]["metadata"]["name"])]
    assert (wrong["reason"], wrong["status"]) == (fault["reason"], str(fault["reason"] == "Ready"))
    assert fault["condition"] in wrong["message"]


@CASES
def test_the_fault_is_in_the_answer_to_the_write_of_the_object(fault: Json):
    *others, last = objects_of(fault)
    verdict = judged(last, others)
    assert verdict.allowed is not fault.get("refused", False)
    said = [text for text in verdict.warnings if not text.endswith(OPEN)] if verdict.allowed else [verdict.message]
    assert len(said) == 1, said
    assert fault["admission"] in said[0]


def test_objects_without_a_fault_get_no_warning():
    def queue(name: str, deserved: Json, **spec: Any) -> Json:
        flavors = [{"flavor": flavor, "deserved": amount} for flavor, amount in deserved.items()]
        return made("Queue", name, flavors=flavors, **spec)

    product = f'device.attributes["{names.DRIVER}"].productName == "{HERE}"'
    objects = [
        made("Flavor", "gpu", deviceSelector=f'device.driver == "{names.DRIVER}"'),
        made("Flavor", "h100", deviceSelector=product, measure="Share"),  # two of one measure would overlap
        made("Flavor", "mem", deviceSelector=product, measure="Capacity", capacityName="memory"),
        queue("org", {"gpu": 4}, namespaceSelector={}),
        queue("a", {"gpu": 2}, parent="org", namespaceSelector={"matchLabels": {"team": "a"}}),
        queue("b", {"gpu": 2, "h100": 1}, parent="org", namespaceSelector={"matchLabels": {"team": "b"}}),
    ]
    assert {each["reason"] for each in ready(objects).values()} == {"Ready"}
    for body in objects:
        verdict = judged(body, objects, operation="UPDATE", old=body)
        assert (verdict.allowed, verdict.warnings) == (True, ()), body["metadata"]["name"]
