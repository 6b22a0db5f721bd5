"""Examples and the table's verdicts through kubectl, the sandbox's apiserver and the running webhook: refused, warned, patched."""

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead.api import claim_sources, names
from fairlead.kube import errors
from fairlead.kube.resources import JOBS, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, TENANCY_POLICIES, raw
from fairlead.sandbox.install.apply import Applier
from fairlead.sandbox.release import NEWEST, Release
from tests.webhook import verdict_table as table
from tests.webhook.conftest import Cluster, served

Json = dict[str, Any]
ROOT = Path(__file__).parents[2]
KUBECTL = shutil.which("kubectl")
pytestmark = [pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed"), pytest.mark.slow]
RESOURCES = {
    "Pod": raw(PODS),
    "Job": raw(JOBS),
    "ResourceClaim": raw(RESOURCE_CLAIMS),
    "ResourceClaimTemplate": raw(RESOURCE_CLAIM_TEMPLATES),
    "TenancyPolicy": raw(TENANCY_POLICIES),
}


PRUNED = {"Policies themselves: an unknown field is refused"}
"""An apiserver drops unknown fields of custom kinds before a webhook sees them, unless asked for strict validation."""


async def kubectl(cluster: Any, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
    assert KUBECTL is not None
    process = await asyncio.create_subprocess_exec(
        KUBECTL,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "KUBECONFIG": str(cluster.workdir / "admin"), "HOME": str(cluster.workdir)},
    )
    out, err = await asyncio.wait_for(process.communicate(stdin.encode()), 60)
    return process.returncode or 0, out.decode(), err.decode()


OWN_KINDS = {"Namespace", "Flavor", "PriorityClass", "Queue", *RESOURCES}
"""Examples with other systems' kinds are applied in tests/examples, on a cluster that has those."""


def examples() -> list[Path]:
    """Directories of examples, but for those that need other systems."""
    return [
        directory
        for directory in sorted((ROOT / "examples").iterdir())
        if directory.is_dir()
        and directory.name != "16-mlflow"  # its Jobs are templates, from which MLflow makes its own
        and all(
            document["kind"] in OWN_KINDS
            for path in directory.glob("*.yaml")
            for document in yaml.safe_load_all(path.read_text())
            if document
        )
    ]


async def test_the_examples_and_the_ready_policies_are_applied_as_they_stand(cluster: Any) -> None:
    async with cluster.webhook():
        for directory in examples():
            if (first := directory / "policy.yaml").exists():  # as its README says: the namespace is there
                await kubectl(cluster, "apply", "-f", str(first))
            status, out, err = await kubectl(cluster, "apply", "-f", str(directory))
            assert (status, err) == (0, ""), f"{directory.name}: {err}"
            assert "created" in out
        status, out, err = await kubectl(cluster, "apply", "-k", str(ROOT / "manifests" / "policies"))
        assert (status, err) == (0, ""), err
        assert out.count("created") == 11


def within(expected: Any, actual: Any) -> bool:
    """Whether actual says all that expected says; the apiserver adds defaults."""
    if expected == {} or isinstance(expected, int):
        return True  # dropped where it is empty; numbers and quantities are written in other ways
    if isinstance(expected, dict):
        return isinstance(actual, dict) and all(within(value, actual.get(key)) for key, value in expected.items())
    if isinstance(expected, list):
        return isinstance(actual, list) and all(any(within(one, other) for other in actual) for one in expected)
    return str(expected) == str(actual)


async def outcome(cluster: Any, case: Json) -> str:
    """What is different from the table, "" when nothing is."""
    expect, object_ = case["expect"], case["object"]
    try:
        stored = await cluster.admin.create(RESOURCES[object_["kind"]], object_, dry_run=True)
    except errors.ApiError as error:
        if expect["verdict"] != "refused":
            return f"refused: {error}"
        first = expect["message"].split("\n")[0]
        by_itself = " is invalid: " in str(error)  # the apiserver, or the CRD's own rules, were first
        return "" if first in str(error) or by_itself else f"not refused with {first!r}: {error}"
    if expect["verdict"] == "refused":
        return "not refused"
    wanted = table.results(case)[0].object
    for entry in wanted["spec"].get("resourceClaims", ()):  # the names of claims are made up anew each time
        if names.CLAIM_SOURCES in wanted["metadata"].get("annotations", {}) and "resourceClaimName" in entry:
            found = next(each for each in stored["spec"]["resourceClaims"] if each["name"] == entry["name"])
            common = entry["resourceClaimName"][: -claim_sources.RANDOM_CHARS]
            assert found["resourceClaimName"].startswith(common)
            entry["resourceClaimName"] = found["resourceClaimName"]
    return "" if within(wanted["spec"], stored["spec"]) else f"patched otherwise: {stored}"


@pytest.fixture
async def with_groups(tmp_path: Path) -> AsyncIterator[Cluster]:
    """With the gate on that keeps `schedulingGroup` in pods: some of the table's have one."""
    async with served(tmp_path, Release.of(NEWEST.minor, {"GenericWorkload": True})) as made:
        yield made


async def test_the_table_holds_on_an_apiserver(with_groups: Cluster) -> None:
    cluster = with_groups
    rows = [
        (name, case)
        for name, case in table.cases()
        if case["object"]["kind"] in RESOURCES
        and name not in PRUNED
        and not case.get("shared")  # options of the program
    ]
    different = []
    async with cluster.webhook():
        await Applier(cluster.admin).apply(yaml.safe_load((table.TABLE / "world.yaml").read_text()))
        for name, case in rows:
            policies = table.policies_of(case)
            await Applier(cluster.admin).apply(policies)
            found = await outcome(cluster, case)
            for _ in range(15):  # policies reach the webhook by its watch
                if not found or "refused" in found.split(" ", 1)[0]:
                    break
                await asyncio.sleep(0.05)
                found = await outcome(cluster, case)
            if found:
                different.append(f"{name}: {found}")
            for policy in policies:
                await cluster.admin.delete(TENANCY_POLICIES, policy["metadata"]["name"])
    assert different == []
    assert len(rows) > 60


TEMPLATE_WAY: Json = {
    "restartPolicy": "Always",
    "containers": [{"name": "c", "image": "busybox", "resources": {"claims": [{"name": "gpu"}]}}],
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
}
LIMIT_WAY: Json = {
    "restartPolicy": "Always",
    "containers": [{"name": "c", "image": "busybox", "resources": {"limits": {names.LEGACY_GPU: "1"}}}],
}


def manifest(kind: str, spec: Json) -> Json:
    labels = {"app": "train"}
    made: Json = {"kind": kind, "metadata": {"name": f"train-{kind.lower()}", "namespace": "ml"}}
    template = {"metadata": {"labels": labels}, "spec": spec}
    match kind:
        case "Pod":
            return made | {"apiVersion": "v1", "spec": spec}
        case "Job":
            once = template | {"spec": spec | {"restartPolicy": "Never"}}
            return made | {"apiVersion": "batch/v1", "spec": {"template": once}}
        case "StatefulSet":
            more: Json = {"serviceName": "train"}
        case _:
            more = {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}
    return made | {"apiVersion": "apps/v1", "spec": {"selector": {"matchLabels": labels}, "template": template} | more}


@pytest.mark.parametrize("server_side", [False, True], ids=["client-side", "server-side"])
@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        *((kind, TEMPLATE_WAY) for kind in ("Pod", "Job", "Deployment", "StatefulSet")),
        *((kind, LIMIT_WAY) for kind in ("Job", "Deployment", "StatefulSet")),
    ],
)
async def test_a_manifest_is_applied_twice_without_an_error_or_a_change(
    cluster: Any, kind: str, spec: Json, server_side: bool
) -> None:
    """All but a bare Pod with limits: what they become is immutable, and differs from its manifest (docs/webhook.md)."""
    options = ["--server-side"] if server_side else []
    text = json.dumps(manifest(kind, spec))
    async with cluster.webhook():
        await Applier(cluster.admin).apply(yaml.safe_load((table.TABLE / "world.yaml").read_text()))
        for _ in range(2):
            status, out, err = await kubectl(cluster, "apply", *options, "-f", "-", stdin=text)
            assert (status, err) == (0, ""), err
        if not server_side:
            assert out.split()[-1] == "unchanged"
        status, out, err = await kubectl(cluster, "diff", *options, "-f", "-", stdin=text)
        assert (status, out) == (0, ""), out + err


@pytest.mark.parametrize("options", [(), ("--server-side",)], ids=["client-side", "server-side"])
async def test_a_bare_pod_with_limits_cannot_be_applied_twice(cluster: Any, options: tuple[str, ...]) -> None:
    """Its limits became claims, in a field that is immutable. docs/webhook.md says so, and the way out."""
    text = json.dumps(manifest("Pod", LIMIT_WAY))
    async with cluster.webhook():
        status, _, err = await kubectl(cluster, "apply", *options, "-f", "-", stdin=text)
        assert (status, err) == (0, "")
        status, _, err = await kubectl(cluster, "apply", *options, "-f", "-", stdin=text)
    assert status == 1
    assert "pod updates may not change fields other than" in err
