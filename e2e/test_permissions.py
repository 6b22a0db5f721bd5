"""Least privilege, both ways: what the programs request of the apiserver is permitted, and what is permitted is requested.

Runs the examples as the demo does, on a sandbox whose apiserver tells what it was asked to allow, and compares with the
rules of the roles as they were installed. A permission that no example needs has its reason here, or goes.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from fairlead.api import names
from fairlead.cli.demo import cases
from fairlead.cli.demo.history import History, Observer
from fairlead.cli.demo.run import NODES
from fairlead.kube.resources import VALIDATING_WEBHOOKS
from fairlead.sandbox import files
from fairlead.sandbox.apiserver.kinds.request import Access, UserInfo
from fairlead.sandbox.cluster import ClusterOptions
from fairlead.sandbox.install import manifests
from fairlead.sandbox.installation import bare, example, labelled, nvidia_gpus, overlay_of, registered
from tests.support.kubernetes import of_this_run

USERS = {names.DRIVER_USER: "driver", names.WEBHOOK_USER: "webhook", names.CONTROLLER_USER: "controller"}

Permission = tuple[str, str, str]
"""Program, verb, resource as group/resource or group/resource/subresource."""

CONFLICT = "read again when a write met a conflict"
NOT_CACHED = "read when a review names what the watch has not shown yet"
UNASKED: set[Permission] = {("controller", "patch", "resource.k8s.io/resourceclaims/binding")}
"""What the roles have for releases that ask for it, 1.36 and later."""
UNUSED: dict[Permission, str] = {
    ("controller", "get", "resource.k8s.io/resourceclaims"): CONFLICT,
    ("controller", "update", "resource.k8s.io/resourceclaims/binding"): "what lets a user take gates off, too",
    ("controller", "get", "/pods"): CONFLICT,
    ("controller", "get", "fairlead.dev/gangs"): CONFLICT,
    ("controller", "get", "resource.k8s.io/resourceclaimtemplates"): CONFLICT,
    ("controller", "patch", "/events"): "an event that comes again is counted, not written again",
    (
        "controller",
        "list",
        "/events",
    ): "why kubelet does not start a pod, where neither its status nor its claims say it",
    ("controller", "delete", "/pods"): "a rolled-back pod whose eviction is not possible",
    ("controller", "create", "/pods/eviction"): "rolling back a gang, reclaim and preemption",
    ("controller", "create", "resource.k8s.io/resourceclaims"): "claims that the claim controller has not made yet",
    (
        "controller",
        "delete",
        "resource.k8s.io/resourceclaims",
    ): "one claim of two where the claim controller made one, too",
    (
        "controller",
        "patch",
        "/pods/status",
    ): "naming claims that it made, and conditions while an eviction is under way",
    (
        "controller",
        "update",
        "/pods/finalizers",
    ): "clusters that enforce permissions on owner references: claims are owned by their pod with blockOwnerDeletion",
    ("controller", "delete", "fairlead.dev/gangs"): "gangs that are over for a while",
    ("controller", "patch", "fairlead.dev/gangs"): "a gang whose size or queue changes",
    ("controller", "patch", "fairlead.dev/flavors/status"): "written when a flavor's total changes",
    ("controller", "patch", "/configmaps"): "the history of run times, which is written again after five minutes",
    **{
        ("controller", verb, "resource.k8s.io/devicetaintrules"): "clusters that serve them"
        for verb in ("list", "watch")
    },
    **{
        ("controller", verb, f"{group}/podgroups"): "clusters that serve other systems' gangs"
        for verb in ("list", "watch")
        for group in ("scheduling.k8s.io", "scheduling.volcano.sh", "scheduling.x-k8s.io")
    },
    **{
        ("controller", verb, "kueue.x-k8s.io/workloadpriorityclasses"): "clusters that serve Kueue's kinds"
        for verb in ("list", "watch")
    },
    **{
        ("controller", verb, kind): "clusters that serve workloads which are scaled while their pods exist"
        for verb in ("list", "watch")
        for kind in ("kubeflow.org/mpijobs", "kubeflow.org/pytorchjobs", "ray.io/rayclusters")
    },
    **{
        ("controller", verb, "trainer.kubeflow.org/trainjobs"): "clusters that serve TrainJobs"
        for verb in ("list", "watch")
    },
    ("driver", "create", "/events"): "a record or a specification that cannot be read, an event on the Node",
    ("driver", "patch", "/events"): "an event that comes again is counted, not written again",
    ("driver", "patch", "resource.k8s.io/resourceclaims/status"): "claims that are prepared for more than five minutes",
    (
        "driver",
        "associated-node:patch",
        "resource.k8s.io/resourceclaims/driver",
    ): "the same, where the apiserver checks it (1.36)",
    ("driver", "update", "resource.k8s.io/resourceslices"): "a node whose devices change",
    ("driver", "delete", "resource.k8s.io/resourceslices"): "a node whose devices get fewer",
    ("webhook", "get", "/namespaces"): NOT_CACHED,
    ("webhook", "get", "resource.k8s.io/resourceclaimtemplates"): NOT_CACHED,
    ("webhook", "get", "resource.k8s.io/deviceclasses"): NOT_CACHED,
    ("webhook", "get", "fairlead.dev/queues"): NOT_CACHED,
    ("webhook", "get", "fairlead.dev/flavors"): NOT_CACHED,
    ("webhook", "get", "resource.k8s.io/resourceclaims"): "a pod that names a claim",
    ("webhook", "get", "batch/jobs"): "a gang whose Job was made before the webhook was there",
    ("webhook", "create", "/events"): "a certificate that cannot be served, an event on its Secret",
    ("webhook", "patch", "/events"): "an event that comes again is counted, not written again",
    **{
        (
            "webhook",
            "update",
            f"admissionregistration.k8s.io/{kind}webhookconfigurations",
        ): "one that was changed by another client"
        for kind in ("mutating", "validating")
    },
}


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_the_programs_have_what_they_need_and_need_what_they_have(request, tmp_path):
    if request.config.getoption("--kubeconfig") is not None:
        pytest.skip("a real cluster does not tell what it was asked to allow")
    asked: set[tuple[str, Access, bool]] = set()

    def audit(user: UserInfo, access: Access, verdict: bool) -> None:
        if user.name in USERS:
            asked.add((USERS[user.name], replace(access, name="", namespace=""), verdict))

    driver = request.config.getoption("--driver")
    objects = manifests.load(files.find(overlay_of(driver)))
    unused = {each for each in UNUSED if driver == names.DRIVER or each[0] != "driver"}
    if not of_this_run().has("granular-status-authorization"):
        unused |= UNASKED
    options = ClusterOptions(workdir=tmp_path, nodes=labelled(NODES), release=of_this_run())
    async with bare(options) as site, contextlib.AsyncExitStack() as stack:
        site.server.state.audit = audit
        if driver != names.DRIVER:
            await stack.enter_async_context(nvidia_gpus(site))
        await site.apply(objects)
        await site.workloads.start()
        await registered(site)
        assert await site.admin.list(VALIDATING_WEBHOOKS)
        async with Observer(site.admin).running() as observer:
            history = observer.history
            await site.apply(example("00-queues", driver, gpus=cases.ISLAND_GPUS))
            for wave in cases.WAVES:
                for case in wave:
                    for number, path in enumerate(case.paths):
                        if number:
                            await observer.until(functools.partial(case.running, history), timeout_s=90)
                        await site.apply(example(path, driver, gpus=cases.ISLAND_GPUS))
                assert await observer.until(functools.partial(_over, wave, history), timeout_s=90)

    denied = sorted(f"{program}: {_shown(access)}" for program, access, verdict in asked if not verdict)
    assert denied == []
    used = {(program, access.verb, _resource(access)) for program, access, _ in asked}
    granted = {permission for each in objects for permission in _granted(each)}
    assert used - granted - _discovery(used) == set()
    assert sorted(granted - used - unused) == [], (
        "no program requests these; take them out of the role, or give the reason here"
    )
    assert sorted(unused - granted) == [], "these are not granted any more"


def _over(wave: Iterable[cases.Case], history: History) -> bool:
    return all(case.finished(history) for case in wave)


def _granted(role: manifests.Manifest) -> Iterator[Permission]:
    program = role["metadata"]["name"].removeprefix("fairlead-")
    if role["kind"] not in {"Role", "ClusterRole"} or program not in USERS.values():
        return
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                yield from ((program, verb, f"{group}/{resource}") for verb in rule["verbs"])


def _resource(access: Access) -> str:
    return "/".join(part for part in (f"{access.group}/{access.resource}", access.subresource) if part)


def _shown(access: Access) -> str:
    return f"{access.verb} {access.path or _resource(access)}"


def _discovery(used: set[Permission]) -> set[Permission]:
    """What everybody may read, paths without a resource."""
    return {permission for permission in used if permission[2] == "/"}
