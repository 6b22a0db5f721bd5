"""Device metadata: a container finds what its devices are where Kubernetes says, and in every version of the schema."""

from __future__ import annotations

import errno
import json
import stat
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from fairlead.api import names
from fairlead.driver.common import files
from fairlead.driver.prepare.preparer import PrepareError
from fairlead.driver.publish import slices
from fairlead.kube import objects
from fairlead.kube.resource import ResourceClaim
from tests.support.driver.claims import claim
from tests.support.driver.node import Node

WHERE = "/var/run/kubernetes.io/dra-device-attributes"
# DeviceMetadata of metadata.resource.k8s.io, both versions, as a schema.
ATTRIBUTE: dict[str, Any] = {
    "type": "object",
    "minProperties": 1,
    "maxProperties": 1,
    "additionalProperties": False,
    "properties": {
        "string": {"type": "string", "maxLength": 64},
        "version": {"type": "string"},
        "int": {"type": "integer"},
        "bool": {"type": "boolean"},
    },
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["apiVersion", "kind", "metadata", "requests"],
    "properties": {
        "apiVersion": {"enum": ["metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1"]},
        "kind": {"const": "DeviceMetadata"},
        "metadata": {"type": "object", "required": ["name", "namespace", "uid", "generation"]},
        "podClaimName": {"type": "string"},
        "requests": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "devices": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "additionalProperties": False,
                            "required": ["driver", "pool", "name"],
                            "properties": {
                                "driver": {"const": "gpu.fairlead.dev"},
                                "pool": {"type": "string"},
                                "name": {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"},
                                "attributes": {
                                    "type": "object",
                                    "maxProperties": 32,
                                    "additionalProperties": ATTRIBUTE,
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}


@pytest.fixture
def node(node: Node) -> Node:
    """One that knows what it publishes."""
    inventory = node.backend.inventory()
    built = slices.build(inventory, slices.Facts(partitionable=frozenset(gpu.uuid for gpu in inventory.gpus)))
    node.published = {device.name: device for device in built.devices}
    return node


def read(path: Path) -> list[dict[str, Any]]:
    """The objects of a stream."""
    decoder, text, found = json.JSONDecoder(), path.read_text(encoding="utf-8"), []
    while text.strip():
        one, end = decoder.raw_decode(text.lstrip())
        found.append(one)
        text = text.lstrip()[end:]
    return found


def mounts(node: Node, uid: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Mounts by the CDI device's name, by their path in the container."""
    spec = json.loads(node.cdi_files.path(uid).read_bytes())
    return {
        device["name"]: {mount["containerPath"]: mount for mount in device["containerEdits"].get("mounts", [])}
        for device in spec["devices"]
    }


def of_template(uid: str, device: str) -> ResourceClaim:
    raw = objects.to_dict(claim(uid, device))
    raw["metadata"]["annotations"] = {names.POD_CLAIM_NAME: "gpus"}
    return msgspec.convert(raw, ResourceClaim)


def test_a_request_has_its_file_with_the_published_attributes_in_both_versions(node: Node) -> None:
    a, b = {"device": "gpu-0", "request": "a"}, {"device": "gpu-1", "request": "b"}
    node.start().prepare(claim("u1", a, b, name="train"))
    found = mounts(node, "u1")
    assert [list(each) for each in found.values()] == [
        [f"{WHERE}/resourceclaims/train/{request}/gpu.fairlead.dev-metadata.json"] for request in ("a", "b")
    ]
    [mount] = found["u1-gpu-0"].values()
    assert mount["options"][0] == "ro"
    objects_ = read(Path(mount["hostPath"]))
    assert [each["apiVersion"].rpartition("/")[2] for each in objects_] == ["v1beta1", "v1alpha1"]
    for each in objects_:
        jsonschema.validate(each, SCHEMA)
        assert each["metadata"] == {"name": "train", "namespace": "ml", "uid": "u1", "generation": 1}
        [request] = each["requests"]
        [device] = request["devices"]
        assert (request["name"], device["name"], device["pool"]) == ("a", "gpu-0", "n1")
        assert device["attributes"]["productName"] == {"string": "NVIDIA H100 80GB HBM3"}
        assert device["attributes"]["resource.kubernetes.io/pciBusID"]["string"].endswith(":00.0")


def test_a_claim_of_a_template_is_found_by_the_pods_name_for_it(node: Node) -> None:
    node.start().prepare(of_template("u1", "gpu-0"))
    [(path, mount)] = mounts(node, "u1")["u1-gpu-0"].items()
    assert path == f"{WHERE}/resourceclaimtemplates/gpus/gpu/gpu.fairlead.dev-metadata.json"
    assert read(Path(mount["hostPath"]))[0]["podClaimName"] == "gpus"


def test_a_mig_device_that_was_created_for_the_claim_has_its_uuid(node: Node) -> None:
    record = node.start().prepare(claim("u1", "gpu-0-mig-3g40gb-9-4"))
    [mount] = mounts(node, "u1")["u1-gpu-0-mig-3g40gb-9-4"].values()
    [device] = read(Path(mount["hostPath"]))[0]["requests"][0]["devices"]
    assert record.devices[0].mig is not None
    assert device["attributes"]["uuid"] == {"string": record.devices[0].mig.uuid}
    assert device["attributes"]["profile"] == {"string": "3g.40gb"}


def test_every_user_of_a_container_can_read_it_and_it_goes_with_the_claim(node: Node) -> None:
    driver = node.start()
    driver.prepare(claim("u1", "gpu-0"))
    [mount] = mounts(node, "u1")["u1-gpu-0"].values()
    path = Path(mount["hostPath"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert all(stat.S_IMODE(parent.stat().st_mode) & 0o5 == 0o5 for parent in (path.parent, path.parent.parent))
    driver.unprepare("u1")
    assert "metadata" not in node.leftovers()


def test_a_file_that_was_lost_with_the_cdi_file_comes_back_with_it(node: Node) -> None:
    driver = node.start()
    driver.prepare(of_template("u1", "gpu-0"))
    [mount] = mounts(node, "u1")["u1-gpu-0"].values()
    before = Path(mount["hostPath"]).read_bytes()
    Path(mount["hostPath"]).unlink()
    node.cdi_files.remove("u1")
    node.start().prepare(of_template("u1", "gpu-0"))
    assert Path(mount["hostPath"]).read_bytes() == before


def test_when_disabled_nothing_is_mounted_and_existing_files_are_still_removed(node: Node) -> None:
    node.start().prepare(claim("u1", "gpu-0"))
    node.device_metadata = False
    driver = node.start()
    driver.prepare(claim("u2", "gpu-1"))
    assert mounts(node, "u2") == {"u2-gpu-1": {}}
    driver.unprepare("u1")
    driver.unprepare("u2")
    assert "metadata" not in node.leftovers()


def test_a_file_that_cannot_be_written_fails_the_claim_which_holds_nothing(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    driver = node.start()
    with monkeypatch.context() as patch:
        patch.setattr(files, "write_in_place", full)
        with pytest.raises(PrepareError, match=r"gpu\.json: No space left on device"):
            driver.prepare(claim("u1", "gpu-0-mig-1g10gb-19-0"))
    assert driver.records() == ()
    assert not node.leftovers()
    driver.prepare(claim("u2", "gpu-0-mig-1g10gb-19-0"))
