"""`fairlead check` of claims whose ways to share a device do not go together: refused, or warned of, with field and next step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead.api import names
from tests.support.commands import invoke

Json = dict[str, Any]
MPS: Json = {"strategy": "MPS"}
SLICES: Json = {"strategy": "TimeSlicing"}


def request(name: str = "gpu", memory: str | None = None, device_class: str = names.GPU_CLASS) -> Json:
    capacity = {"capacity": {"requests": {"memory": memory}}} if memory else {}
    return {"name": name, "exactly": {"deviceClassName": device_class, **capacity}}


def config(*requests: str, kind: str = "GpuConfig", **fields: Any) -> Json:
    parameters = {"apiVersion": names.CONFIG_API_VERSION, "kind": kind, **fields}
    return {"requests": list(requests), "opaque": {"driver": names.DRIVER, "parameters": parameters}}


def claim(requests: list[Json], *configs: Json) -> Json:
    spec = {"devices": {"requests": requests, "config": list(configs)}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "ml"},
        "spec": spec,
    }


def devices(*, shared: bool) -> list[Json]:
    """A node with a GPU and a MIG device, and the two classes."""
    common = {"allowMultipleAllocations": True} if shared else {}
    listed = [
        {
            "name": name,
            "attributes": {
                "type": {"string": kind},
                "productName": {"string": "NVIDIA H100"},
                "profile": {"string": "3g.40gb"},
            },
            "capacity": {"memory": {"value": memory}},
            **common,
        }
        for name, kind, memory in (("gpu-0", "gpu", "80Gi"), ("gpu-1-mig-3g40gb-9-0", "mig", "40Gi"))
    ]
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    made: list[Json] = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": "n1"},
            "spec": {"driver": names.DRIVER, "nodeName": "n1", "pool": pool, "devices": listed},
        }
    ]
    for name, kind in ((names.GPU_CLASS, "gpu"), (names.MIG_CLASS, "mig")):
        text = f'device.driver == "{names.DRIVER}" && device.attributes["{names.DRIVER}"].type == "{kind}"'
        spec = {"selectors": [{"cel": {"expression": text}}]}
        made.append(
            {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}
        )
    return made


def check(path: Path, *objects: Json) -> tuple[int, str]:
    file = path / "manifests.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    result = invoke(["check", str(file)])
    return result.exit_code, " ".join(result.output.split())


SHARE = request(memory="20Gi")
REFUSED = {
    "two strategies for one request": (
        claim([request()], config("gpu", sharing=MPS), config("gpu", sharing=SLICES)),
        "config[1].opaque.parameters.sharing.strategy: 'TimeSlicing' for request 'gpu', and spec.devices.config[0].opaque.parameters.sharing.strategy says 'MPS'",
    ),
    "a limit above the share": (
        claim([SHARE], config(sharing={**MPS, "mpsConfig": {"defaultPinnedDeviceMemoryLimit": "30Gi"}})),
        "defaultPinnedDeviceMemoryLimit: 30Gi for a program is more than the share that request 'gpu' asks for (20Gi)",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("manifest", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_is_refused_by_its_field(tmp_path: Path, manifest: Json, said: str) -> None:
    status, out = check(tmp_path, manifest)
    assert status == 1, out
    assert said in out


@pytest.mark.parametrize(
    ("manifest", "shared", "said"),
    [
        (claim([request(memory="200Gi")]), True, "capacity.requests[memory]: 200Gi is more than any device has that it may get: the most is 80Gi"),
        (claim([SHARE], config(sharing=MPS)), False, "the claim gets a whole one; an administrator turns on sharing in the driver (Fairlead's: --shared-gpus)"),
        (
            claim([request(memory="5Gi", device_class=names.MIG_CLASS)], config(kind="MigDeviceConfig", sharing=MPS)),
            False,
            "(n1/gpu-1-mig-3g40gb-9-0): the claim gets a whole one; an administrator turns on sharing in the driver (Fairlead's: --shared-mig)",
        ),
        (
            claim([request(), request("other")], config("gpu", sharing=MPS)),
            True,
            "a container that uses request 'gpu', which is under MPS, sees no device of request 'other'",
        ),
    ],
    ids=["more than there is", "no shared GPU", "no shared MIG device", "one of two requests"],
)  # fmt: skip
def test_what_waits_or_is_other_than_it_looks_is_a_warning(
    tmp_path: Path, manifest: Json, shared: bool, said: str
) -> None:
    status, out = check(tmp_path, manifest, *devices(shared=shared))
    assert status == 0, out
    assert said in out


@pytest.mark.parametrize(
    "manifest",
    [
        claim([SHARE], config(sharing={**MPS, "mpsConfig": {"defaultPinnedDeviceMemoryLimit": "10Gi"}})),
        claim([request(memory="5Gi", device_class=names.MIG_CLASS)], config(kind="MigDeviceConfig", sharing=MPS)),
        claim([request(), request("other")], config(sharing=SLICES), config("gpu", sharing=MPS), config("other", sharing=MPS)),
    ],
    ids=["a limit below the share", "a share of a MIG device", "a special config before a general one"],
)  # fmt: skip
def test_what_can_be_is_admitted_without_a_word(tmp_path: Path, manifest: Json) -> None:
    status, out = check(tmp_path, manifest, *devices(shared=True))
    assert status == 0, out
    assert "warning" not in out


def test_a_container_that_uses_two_claims_of_which_one_is_under_mps(tmp_path: Path) -> None:
    def template(name: str, *configs: Json) -> Json:
        made = claim([SHARE], *configs)
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": name, "namespace": "ml"},
            "spec": {"spec": made["spec"]},
        }

    def pod(*containers: list[str]) -> Json:
        uses = [{"name": one, "resourceClaimTemplateName": one} for one in ("held", "plain")]
        made = [
            {"name": f"c{n}", "image": "i", "resources": {"claims": [{"name": name} for name in named]}}
            for n, named in enumerate(containers)
        ]
        meta = {"name": "p", "namespace": "ml"}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": meta,
            "spec": {"containers": made, "resourceClaims": uses},
        }

    templates = (template("held", config(sharing=MPS)), template("plain"))
    _, out = check(tmp_path, *templates, pod(["held", "plain"], ["plain"]))
    said = "containers[0].resources.claims: claim 'held' is under MPS, so a CUDA program of this container sees no device of 'plain'"
    assert said in out
    assert "containers[1].resources.claims" not in out
    _, out = check(tmp_path, *templates, pod(["held"], ["plain"]))
    assert "is under MPS" not in out
