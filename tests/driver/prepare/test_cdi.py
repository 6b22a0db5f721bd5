"""CDI specs: they follow the specification's schema and rules, and hold what a container needs."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.api.capabilities import DEFAULT_CAPABILITIES
from fairlead.driver.prepare import cdi, libraries
from fairlead.sandbox.kubelet.cdi import resolve
from tests.support.driver.claims import claim, mps, time_slicing
from tests.support.driver.node import Node

Valid = Callable[[dict[str, Any]], None]

UID = "0b0a9e0c-6d5e-4f0e-9a53-3f3a8d6e7c11"


def written(node: Node) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads(node.cdi_files.path(UID).read_bytes())
    return spec


@pytest.mark.parametrize(
    ("devices", "config"),
    [
        (["gpu-0"], []),
        ([f"gpu-{minor}" for minor in range(8)], []),
        (["gpu-0-mig-1g10gb-me-20-3"], []),
        ([{"device": "gpu-0", "shareID": "3f3a8d6e-0000-4000-8000-000000000001"}], []),
        ([{"device": "gpu-0", "adminAccess": True}, {"device": "gpu-0", "request": "other", "adminAccess": True}], []),
        (["gpu-0", "gpu-1"], [time_slicing("Short")]),
        (["gpu-0", "gpu-1"], [mps(defaultActiveThreadPercentage=50)]),
    ],
)
def test_a_spec_follows_the_specification(
    node: Node, devices: list[str | dict[str, Any]], config: list[dict[str, Any]], valid_cdi: Valid
) -> None:
    driver = node.start()
    driver.prepare(claim(UID, *devices, config=config))
    spec = written(node)
    valid_cdi(spec)
    names = [device["name"] for device in spec["devices"]]
    assert len(names) == len(set(names))
    assert all(name.startswith(UID) for name in names)  # a runtime caches by name: none is ever used again
    driver.unprepare(UID)


def test_the_file_is_named_as_the_specification_asks_and_readable_by_the_runtime(node: Node) -> None:
    node.start().prepare(claim(UID, "gpu-0"))
    path = node.cdi_files.path(UID)
    assert path.name == f"k8s.gpu.fairlead.dev-claim_{UID}.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_each_container_gets_the_control_nodes_and_is_kept_from_the_legacy_runtime(node: Node) -> None:
    node.start().prepare(claim(UID, "gpu-0"))
    common = written(node)["containerEdits"]
    assert common["env"] == ["NVIDIA_VISIBLE_DEVICES=void"]
    assert [node["path"] for node in common["deviceNodes"]] == [
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
    ]


def test_a_simulated_gpu_stands_on_dev_null_which_every_host_has(node: Node) -> None:
    node.start().prepare(claim(UID, "gpu-5"))
    [device] = written(node)["devices"]
    assert device["containerEdits"]["deviceNodes"] == [
        {
            "path": "/dev/nvidia5",
            "hostPath": "/dev/null",
            "type": "c",
            "major": 1,
            "minor": 3,
            "fileMode": 0o666,
            "permissions": "rw",
        }
    ]


def test_a_runtime_finds_what_two_requests_of_a_claim_add_together(node: Node) -> None:
    """As containerd does it: by name, over all files of the directory; a mount that comes twice is one."""
    driver = node.start()
    devices = ({"device": "gpu-0", "request": "a"}, {"device": "gpu-1", "request": "b"})
    record = driver.prepare(claim(UID, *devices, name="train", config=[mps()]))
    driver.prepare(claim("other", "gpu-2"))
    edits = resolve(node.path / "cdi", [cdi.device_id(UID, device) for device in record.devices])
    assert {"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"} <= set(edits.device_nodes)
    assert "/dev/nvidia2" not in edits.device_nodes
    assert edits.env["CUDA_MPS_PIPE_DIRECTORY"] == "/tmp/nvidia-mps"
    inside = [path for _, path in edits.mounts]
    assert len(inside) == len(set(inside))
    where = "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/train"
    assert {f"{where}/{request}/gpu.fairlead.dev-metadata.json" for request in "ab"} <= set(inside)
    driver.unprepare(UID)


class TestLibraries:
    VERSION = "580.105.08"

    def root(self, path: Path) -> Path:
        libraries_dir = path / "usr/lib/x86_64-linux-gnu"
        libraries_dir.mkdir(parents=True)
        for name in ("libcuda", "libnvidia-ml"):
            (libraries_dir / f"{name}.so.{self.VERSION}").write_bytes(b"\x7fELF")
            (libraries_dir / f"{name}.so.1").symlink_to(f"{name}.so.{self.VERSION}")
        (libraries_dir / "libc.so.6").write_bytes(b"\x7fELF")
        (libraries_dir / "libcuda.so.535.1").write_bytes(b"\x7fELF")
        (path / "lib").symlink_to("usr/lib")
        (path / "usr/bin").mkdir()
        (path / "usr/bin/nvidia-smi").write_bytes(b"\x7fELF")
        (path / "bin").symlink_to("usr/bin")
        firmware = path / "lib/firmware/nvidia" / self.VERSION
        firmware.mkdir(parents=True)
        (firmware / "gsp_ga10x.bin").write_bytes(b"")
        return path

    def paths(self, root: Path, *capabilities: str, links: Path | None = None, **more: Path) -> dict[str, str]:
        """Of what a container gets, the path on the host by that in the container."""
        files = libraries.find(root, self.VERSION, **more)
        files = files if links is None else files.linked(links)
        return {mount.container_path: mount.host_path for mount in files.of(capabilities or DEFAULT_CAPABILITIES)}

    def test_each_library_comes_once_under_the_name_that_programs_load(self, tmp_path: Path) -> None:
        found = self.paths(self.root(tmp_path))
        directory = "/usr/lib/x86_64-linux-gnu"
        assert list(found) == sorted(
            [
                *(f"{directory}/{name}" for name in ("libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1")),
                "/usr/bin/nvidia-smi",
                f"/lib/firmware/nvidia/{self.VERSION}/gsp_ga10x.bin",
            ]
        )
        assert found[f"{directory}/libcuda.so.1"] == str(tmp_path / f"{directory[1:]}/libcuda.so.{self.VERSION}")

    def test_images_of_other_distributions_find_every_name_by_links_in_one_directory(self, tmp_path: Path) -> None:
        links = tmp_path / "links"
        found = self.paths(self.root(tmp_path / "root"), links=links)
        assert found[libraries.LIBRARY_DIR] == str(links)
        targets = {path.name: str(path.readlink()) for path in links.iterdir()}
        directory = "/usr/lib/x86_64-linux-gnu"
        assert targets == dict.fromkeys(
            ["libcuda.so", "libcuda.so.1", f"libcuda.so.{self.VERSION}"], f"{directory}/libcuda.so.1"
        ) | dict.fromkeys(["libnvidia-ml.so.1", f"libnvidia-ml.so.{self.VERSION}"], f"{directory}/libnvidia-ml.so.1")
        assert set(targets.values()) <= set(found)

    def test_links_of_another_version_go_and_those_that_are_right_stay(self, tmp_path: Path) -> None:
        links = tmp_path / "links"
        root = self.root(tmp_path / "root")
        self.paths(root, links=links)
        (links / "libcuda.so.535.1").symlink_to("/usr/lib64/libcuda.so.1")
        (links / "libcuda.so").unlink()
        (links / "libcuda.so").symlink_to("/elsewhere")
        kept = (links / "libcuda.so.1").lstat().st_ino
        self.paths(root, links=links)
        assert not (links / "libcuda.so.535.1").is_symlink()
        assert str((links / "libcuda.so").readlink()) == "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
        assert (links / "libcuda.so.1").lstat().st_ino == kept

    def test_graphics_and_video_come_for_claims_that_ask(self, tmp_path: Path) -> None:
        root = self.root(tmp_path)
        for name in ("libEGL_nvidia.so.0", "libnvidia-glcore.so", "libnvidia-encode.so.1", "libnvidia-nvvm.so.4"):
            real = f"{name.partition('.so')[0]}.so.{self.VERSION}"
            (root / "usr/lib/x86_64-linux-gnu" / real).write_bytes(b"\x7fELF")
            (root / "usr/lib/x86_64-linux-gnu" / name).symlink_to(real)

        def names(*capabilities: str) -> set[str]:
            return {Path(path).name for path in self.paths(root, *capabilities) if "/lib/x86_64" in path}

        plain = names()
        assert "libnvidia-nvvm.so.4" in plain
        assert names("compute", "graphics") - plain == {"libEGL_nvidia.so.0", f"libnvidia-glcore.so.{self.VERSION}"}
        assert names("video") - plain == {"libnvidia-encode.so.1"}
        assert names("utility") == {"libnvidia-ml.so.1"}

    def test_a_root_that_the_host_sees_elsewhere_is_named_as_the_host_sees_it(self, tmp_path: Path) -> None:
        root = self.root(tmp_path)
        found = self.paths(root, host_root=Path("/run/nvidia/driver"))
        assert found
        assert all(path.startswith("/run/nvidia/driver/") for path in found.values())
        assert set(found) == set(self.paths(root))

    def test_symlinks_are_read_within_the_root_and_never_lead_out_of_it(self, tmp_path: Path) -> None:
        root = self.root(tmp_path / "root")
        directory = root / "usr/lib/x86_64-linux-gnu"
        (directory / "libcuda.so.1").unlink()
        (directory / "libcuda.so.1").symlink_to(f"/usr/lib/x86_64-linux-gnu/libcuda.so.{self.VERSION}")
        (directory / "libnvidia-out.so.1").symlink_to(f"../../../../outside.so.{self.VERSION}")
        (tmp_path / f"outside.so.{self.VERSION}").write_bytes(b"")
        (directory / "libloop.so.1").symlink_to("libloop.so.1")
        found = self.paths(root)
        assert found["/usr/lib/x86_64-linux-gnu/libcuda.so.1"] == f"{directory}/libcuda.so.{self.VERSION}"
        assert not [path for path in found if "out" in path or "loop" in path]

    def test_a_host_without_the_driver_gives_nothing(self, tmp_path: Path) -> None:
        there = self.root(tmp_path / "root")
        for root, version in ((tmp_path, self.VERSION), (there, None), (there, "1.2.3")):
            assert libraries.find(root, version).linked(tmp_path / "links") == libraries.NO_FILES
        assert not (tmp_path / "links").exists()
