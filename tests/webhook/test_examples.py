"""Every example is admitted as it stands: no warning, nothing refused, and its pods gated.

Of kinds whose pods another system makes, tests/examples tries the pods.
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.api import names
from fairlead.api.flavor import Flavor
from fairlead.api.policy import TenancyPolicy
from fairlead.kube.resource import DeviceClass, ResourceClaimSpec
from fairlead.webhook.offline import RESOURCES
from fairlead.webhook.review.facts import Facts
from tests.support import compute_domains, quick_yaml
from tests.support.webhook import CLASSES, admitted, device_class, facts

Json = dict[str, Any]
FILES = sorted((Path(__file__).parents[2] / "examples").glob("*/*.yaml"))
OBJECTS: list[tuple[str, Json]] = [
    (f"{path.parent.name}-{path.stem}-{document['kind']}-{document['metadata']['name']}", document)
    for path in FILES
    for document in quick_yaml.load_all(path.read_text())
    if document
]
NO_PODS = {"TrainJob", "Namespace"}  # the runtime of the one has its templates
REVIEWED = [
    (name, document) for name, document in OBJECTS if document["kind"] in RESOURCES and document["kind"] not in NO_PODS
]


def governing(namespace: str) -> list[TenancyPolicy]:
    """The policies of the examples that select the namespace, which is one of an example's."""
    labels = {
        document["metadata"]["name"]: document["metadata"].get("labels", {})
        for _, document in OBJECTS
        if document["kind"] == "Namespace"
    }
    return [
        TenancyPolicy.read(document)
        for _, document in OBJECTS
        if document["kind"] == "TenancyPolicy"
        and document["spec"]["namespaceSelector"]["matchLabels"].items() <= labels.get(namespace, {}).items()
    ]


def known(namespace: str) -> Facts:
    """The cluster once every example's classes, templates, flavors and policies are there, the class that dra.cpu ships, and what NVIDIA's driver
    makes of ComputeDomains.
    """
    templates, flavors, classes = {}, {}, {**CLASSES, "dra.cpu": device_class("dra.cpu", "device.driver == 'dra.cpu'")}
    made = [
        each
        for _, document in OBJECTS
        if document["kind"] == "ComputeDomain"
        for each in compute_domains.made_of({**document, "metadata": {**document["metadata"], "uid": "1"}})
    ]
    for document in (*(document for _, document in OBJECTS), *compute_domains.installation(), *made):
        metadata = document["metadata"]
        if document["kind"] == "ResourceClaimTemplate":
            spec = msgspec.convert(document["spec"]["spec"], ResourceClaimSpec)
            templates[metadata.get("namespace", "default"), metadata["name"]] = spec
        if document["kind"] == "DeviceClass":
            classes[metadata["name"]] = msgspec.convert(document, DeviceClass)
        if document["kind"] == "Flavor":
            flavors[metadata["name"]] = Flavor.read(document)
    drivers = (names.DRIVER, "dra.net", "dra.cpu")
    return facts(templates=templates, flavors=flavors, classes=classes, drivers=drivers, policies=governing(namespace))


@pytest.mark.parametrize(("name", "document"), REVIEWED, ids=[name for name, _ in REVIEWED])
def test_an_example_is_admitted(name: str, document: Json) -> None:
    document["metadata"].setdefault("namespace", "default")
    namespace = document["metadata"]["namespace"]
    if document["kind"] in {"Queue", "Flavor", "TenancyPolicy"}:
        del document["metadata"]["namespace"]
    stored, verdict = admitted(document, known(namespace))
    assert verdict.allowed, verdict.message
    elsewhere = f"{names.GANG_SIZE}: 5 members, but the Job runs at most "  # of 25: the gang is of two Jobs
    assert [text for text in verdict.warnings if not (name.startswith("25-") and text.startswith(elsewhere))] == []
    assert verdict.cause != "unmanaged"
    if document["kind"] == "Job":
        template = stored["spec"]["template"]
        pod = {"apiVersion": "v1", "kind": "Pod", **template}
        pod["metadata"] = {**template.get("metadata", {}), "name": "worker-0", "namespace": namespace}
        if stored["spec"].get("completionMode") == "Indexed":  # as the Job controller makes it
            pod["metadata"]["annotations"] = {**pod["metadata"]["annotations"], names.COMPLETION_INDEX: "0"}
        stored, verdict = admitted(pod, known(namespace))
        assert verdict.allowed, verdict.message
        of_gang = names.GANG in template.get("metadata", {}).get("annotations", {})
        assert stored["metadata"].get("annotations", {}).get(names.GANG_SIZE, "").isdigit() == of_gang
    if stored["kind"] == "Pod":
        assert stored["spec"]["schedulingGates"] == [{"name": names.ADMISSION_GATE}]
