"""Examples run on nodes of any size: their CPU and memory requests can be replaced, and nothing else is."""

import pytest

from fairlead.sandbox import files
from fairlead.sandbox.install import manifests


@pytest.mark.parametrize(
    ("text", "requests"),
    [("none", {}), ("cpu=10m", {"cpu": "10m"}), ("cpu=10m,memory=16Mi", {"cpu": "10m", "memory": "16Mi"})],
)
def test_requests_are_replaced_in_pods_and_in_templates_of_jobs(text: str, requests: dict[str, str]):
    for manifest in manifests.load(files.find("examples/02-indexed-job")):
        before = repr(manifest)
        after = manifests.replaced(manifest, manifests.parse(text))
        assert repr(manifest) == before, "the argument is left as it is"
        if manifest["kind"] != "Job":
            assert after == manifest
            continue
        (container,) = after["spec"]["template"]["spec"]["containers"]
        assert container["resources"] == {"requests": requests, "limits": {"nvidia.com/gpu": 2}}
        assert after["spec"]["completions"] == manifest["spec"]["completions"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "give none, or requests as in"),
        ("gpu=1", "'gpu=1': give none"),
        ("cpu=ten", "'cpu=ten': "),
        ("cpu", "'cpu': "),
    ],
)
def test_what_is_no_request_is_refused_with_its_place(text: str, fault: str):
    with pytest.raises(ValueError, match=fault):
        manifests.parse(text)
