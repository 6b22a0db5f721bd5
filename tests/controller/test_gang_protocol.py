"""The gang protocol from gate to release, on the sandbox. Not here: crashes (test_kill) and faults (test_faults)."""

from fairlead.api import names
from fairlead.kube import errors, resources

from .conftest import NAMESPACE, Bench


async def test_a_single_pod_gets_its_device_and_runs(bench: Bench):
    await bench.template("one")
    async with bench.controller():
        await bench.pod("solo", template="one")
        await bench.until(lambda: bench.running(["solo"]), "the pod runs")
    (claim,) = bench.allocated()
    pod = bench.get("solo")
    assert pod is not None
    assert [reference.uid for reference in claim.status.reserved_for] == [pod.metadata.uid]
    assert claim.status.allocation is not None
    assert claim.status.allocation.allocation_timestamp is not None
    assert names.CLAIM_FINALIZER in claim.metadata.finalizers
    assert pod.status.resource_claim_statuses[0].resource_claim_name == claim.metadata.name
