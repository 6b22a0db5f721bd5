"""Every example is admitted as it stands: no warning, nothing refused, and its pods gated."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from fairlead.api import names
from fairlead.api.flavor import Flavor
from fairlead.kube.resource import ResourceClaimSpec
from fairlead.webhook.review.facts import Facts
from tests.support.webhook import admitted, facts

Json = dict[str, Any]
FILES = sorted((Path(__file__).parents[2] / "examples").glob("*/*.yaml"))
OBJECTS: list[tuple[str, Json]] = [
    (f"{path.parent.name}-{document['kind']}-{document['metadata']['name']}", document)
    for path in FILES
    for document in yaml.safe_load_all(path.read_text())
    if document and document["kind"] != "Namespace"
]


def known() -> Facts:
    """The cluster once every example's templates and flavors are there."""
    templates, flavors = {}, {}
    for _, document in OBJECTS:
        metadata = document["metadata"]
        if document["kind"] == "ResourceClaimTemplate":
            spec = msgspec.convert(document["spec"]["spec"], ResourceClaimSpec)
            templates[metadata.get("namespace", "default"), metadata["name"]] = spec
        if document["kind"] == "Flavor":
            flavors[metadata["name"]] = Flavor.read(document)
    return facts(templates=templates, flavors=flavors)


@pytest.mark.parametrize("document", [document for _, document in OBJECTS], ids=[name for name, _ in OBJECTS])
def test_an_example_is_admitted(document: Json) -> None:
    document["metadata"].setdefault("namespace", "default")
    if document["kind"] in {"Queue", "Flavor", "TenancyPolicy"}:
        del document["metadata"]["namespace"]
    stored, verdict = admitted(document, known())
    assert verdict.allowed, verdict.message
    assert verdict.warnings == ()
    assert verdict.cause != "unmanaged"
    if document["kind"] == "Job":
        template = stored["spec"]["template"]
        pod = {"apiVersion": "v1", "kind": "Pod", **template}
        pod["metadata"] = {**template["metadata"], "name": "worker-0", "namespace": document["metadata"]["namespace"]}
        if stored["spec"].get("completionMode") == "Indexed":  # as the Job controller makes it
            pod["metadata"]["annotations"] = {**pod["metadata"]["annotations"], names.COMPLETION_INDEX: "0"}
        stored, verdict = admitted(pod, known())
        assert verdict.allowed, verdict.message
        assert stored["metadata"]["annotations"][names.GANG_SIZE].isdigit()
    if stored["kind"] == "Pod":
        assert stored["spec"]["schedulingGates"] == [{"name": names.ADMISSION_GATE}]


def test_there_are_examples() -> None:
    assert len(FILES) >= 6
