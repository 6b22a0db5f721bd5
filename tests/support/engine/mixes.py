"""Mixes of requests for tests of placement, and the GPUs with memory in parts that they are for."""

from __future__ import annotations

from typing import Any

from fairlead.engine.placement.value.workload import WorkloadCounter
from fairlead.engine.types.pods import Workload
from tests.support.engine.objects import claim_spec, device_request, gang, gpu

MEMORY = "80Gi"


def share(gib: int) -> dict[str, Any]:
    """A claim of so much memory of a shared GPU."""
    return claim_spec(device_request(capacity={"requests": {"memory": f"{gib}Gi"}}))


def shared_gpus(count: int) -> list[dict[str, Any]]:
    return [gpu(minor, memory=MEMORY, allowMultipleAllocations=True) for minor in range(count)]


def seen(*entries: tuple[dict[str, Any], int, str]) -> Workload:
    """The mix of pods that were seen: claim, how many, CPU of each. Enough of them for there to be one."""
    counter = WorkloadCounter()
    for number, (spec, count, cpu) in enumerate(entries):
        counter.note(gang(f"seen-{number}", count, spec, cpu=cpu))
    workload = counter.workload()
    assert workload is not None
    return workload
