"""Controller and driver on the sandbox: with MIG on demand a GPU in use stays whole while admin access asks for a MIG device of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fairlead.api import names
from fairlead.kube.resources import NAMESPACES
from fairlead.sandbox.cluster import NodeSpec
from tests.controller.conftest import NAMESPACE, benches

PROFILE = f'device.attributes["{names.DRIVER}"].profile == "3g.40gb"'


async def test_a_watch_waits_until_a_mig_device_exists_and_then_sees_it(tmp_path: Path):
    node = NodeSpec("m1", "hgx-h100", flags=("--dynamic-mig",))
    async with benches(tmp_path, count=0, more=[node]) as bench:
        label = {"metadata": {"labels": {names.ADMIN_ACCESS_LABEL: "true"}}}
        await bench.client.patch(NAMESPACES, NAMESPACE, label)
        await bench.template("whole", 8)
        mig: dict[str, Any] = {"deviceClassName": names.MIG_CLASS, "selector": PROFILE}
        await bench.template("part", **mig)
        await bench.template("watch", **mig, adminAccess=True)
        async with bench.controller():
            await bench.pod("job", template="whole")
            await bench.until(lambda: bench.running(["job"]), "all GPUs are in use")
            await bench.pod("watch", template="watch")
            said = "made only for a claim that takes it"
            await bench.until(lambda: said in str(bench.status("watch")), "the reason says that there is none")
            assert bench.gated(["watch"])
            await bench.delete(["job"])
            await bench.pod("part", template="part")
            await bench.until(lambda: bench.running(["part", "watch"]), "both have the MIG device")
            allocations = [claim.status.allocation for claim in bench.allocated()]
            devices = {found.devices.results[0].device for found in allocations if found is not None}
            assert len(devices) == 1
