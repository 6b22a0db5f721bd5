"""Which of what a cluster serves the programs read, by the discovery documents of each Kubernetes release."""

from typing import Any, cast

import pytest

from fairlead.controller.watch.optional import version_of
from fairlead.controller.watch.other_systems import POD_GROUP_VERSIONS
from fairlead.kube import errors, releases, resources
from fairlead.kube.client import Client
from tests.support.discovery import DOCUMENTS, Discovery

TAINT_RULES = resources.DEVICE_TAINT_RULE_VERSIONS
CASES = [(release, flags) for release, variants in DOCUMENTS.items() for flags in variants]
# Release, whether flags are set: version of DeviceTaintRule and of PodGroup.
READ: dict[tuple[str, bool], tuple[str | None, str | None]] = {
    ("1.34", False): (None, None),
    ("1.34", True): ("v1alpha3", None),
    ("1.35", False): (None, None),
    ("1.35", True): ("v1alpha3", None),
    ("1.36", False): (None, None),
    ("1.36", True): ("v1beta2", "v1alpha2"),
    ("1.37", False): ("v1", None),
    ("1.37", True): ("v1", "v1beta1"),
}


def client_of(release: str, groups: Any) -> Client:
    return cast("Client", Discovery(release, groups))


@pytest.mark.parametrize(("release", "flags"), CASES)
async def test_each_release_is_read_in_the_best_version_that_it_serves(release: str, flags: str):
    client = client_of(release, DOCUMENTS[release][flags])
    rules = await version_of(client, "resource.k8s.io", TAINT_RULES, "devicetaintrules")
    groups = await version_of(client, "scheduling.k8s.io", POD_GROUP_VERSIONS["scheduling.k8s.io"], "podgroups")
    assert (rules, groups) == READ[release, flags != "default"]


def test_the_table_of_releases_names_the_versions_that_are_read():
    assert list(DOCUMENTS) == [releases.written(each) for each in releases.RELEASES]
    kinds = (
        ("device-taint-rules", "devicetaintrules", "resource.k8s.io"),
        ("pod-groups", "podgroups", "scheduling.k8s.io"),
    )
    for position, (key, plural, group) in enumerate(kinds):
        need = releases.need(key)
        for (release, _), versions in READ.items():
            version = versions[position]
            if version is not None:
                assert f"{plural}.{version}.{group}" in need.served
                assert need.stage(releases.parse(release)) != "none"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"versions":1}',
        b'{"versions":["v1"]}',
        b'{"versions":[{"version":{}}]}',
        b'"\xff"',
        b'{"versions":1,"major":1e999,"minor":[]}',
        b'{"a":' * 3000,
    ],
)
async def test_a_document_that_cannot_be_read_is_a_failed_discovery(body: bytes):
    """As fuzzing found it: it ended the informer's task, and the controller with it."""

    class Apiserver:
        async def request(self, *_: Any, **__: Any) -> bytes:
            return body

    client = cast("Client", Apiserver())
    with pytest.raises(errors.ServerError):
        await version_of(client, "resource.k8s.io", TAINT_RULES, "devicetaintrules")
