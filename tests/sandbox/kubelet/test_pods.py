"""What a pod's status says, what a simulated container does, and what CDI edits give it."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairlead.sandbox.kubelet import cdi, pod_status
from fairlead.sandbox.kubelet.cdi import Edits
from fairlead.sandbox.kubelet.runtime import Container, Program, program_of


@pytest.mark.parametrize(
    ("command", "want"),
    [
        ([], Program(None)),
        (["sh", "-c", "env | grep ^FAIR >> /dev/termination-log; exit 3"], Program(0.0, 3, reports="FAIR")),
        (["python", "train.py"], Program(None)),
        (["sleep", "3"], Program(3.0)),
        (["/bin/sleep", "0.5"], Program(0.5)),
        (["sleep", "2m"], Program(120.0)),
        (["sleep", "infinity"], Program(None)),
        (["sh", "-c", "nvidia-smi -L && sleep 5; exit 3"], Program(5.0, 3)),
        (["sh", "-c", "sleep 1; sleep 2"], Program(3.0)),
        (["sh", "-c", "exit 1"], Program(0.0, 1)),
        (["false"], Program(0.0, 1)),
        (["true"], Program(0.0, 0)),
    ],
)
def test_a_container_runs_as_long_as_its_command_sleeps(command: list[str], want: Program) -> None:
    assert program_of({"command": command}) == want


@pytest.mark.parametrize(
    ("script", "want"),
    [
        ("sleep infinity", Program(None)),
        ("trap '' TERM; sleep infinity", Program(None, stop_s=None)),
        ('trap "" INT SIGTERM; sleep 60', Program(60.0, stop_s=None)),
        ("trap 'sleep 5; exit 3' TERM; sleep infinity & wait", Program(None, 0, 5.0, 3)),
        ("trap 'echo saved; sleep 2m' TERM INT; sleep 9; exit 4", Program(9.0, 4, 120.0, 143)),
        ("trap 'exit 0' TERM; python train.py", Program(None, 0, 0.0, 0)),
        ("trap 'rm -f lock' EXIT; sleep 9", Program(9.0)),
        ("trap '' TERM; trap - TERM; sleep 9", Program(9.0)),
        ("trap 'sleep infinity' TERM; sleep 9", Program(9.0, stop_s=None)),
    ],
)
def test_a_container_stops_at_sigterm_as_its_trap_says(script: str, want: Program) -> None:
    assert program_of({"command": ["sh", "-c", script]}) == want


def container(exit_code: int | None = None) -> Container:
    ended_s = None if exit_code is None else 2.0
    return Container(
        namespace="ml", pod="p", name="c", edits=Edits(), started_s=1.0, ended_s=ended_s, exit_code=exit_code
    )


@pytest.mark.parametrize(
    ("policy", "codes", "want"),
    [
        ("Never", [None], "Running"),
        ("Never", [0, None], "Running"),
        ("Never", [0, 0], "Succeeded"),
        ("Never", [0, 1], "Failed"),
        ("OnFailure", [1], "Running"),
        ("OnFailure", [0], "Succeeded"),
        ("Always", [0], "Running"),
    ],
)
def test_the_phase_follows_from_the_containers(policy: str, codes: list[int | None], want: str) -> None:
    pod: dict[str, Any] = {"spec": {"restartPolicy": policy}}
    assert pod_status.phase(pod, {str(i): container(code) for i, code in enumerate(codes)}) == want
    assert pod_status.phase(pod, {"a": None}) == "Pending"


def test_a_running_pod_is_ready_and_an_ended_one_says_why_not() -> None:
    pod: dict[str, Any] = {
        "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"},
        "status": {},
    }
    args: Any = {"now_s": 10.0, "host_ip": "10.0.0.1", "pod_ip": "10.1.0.1"}
    running = pod_status.status(pod, {"c": container()}, **args)
    pod["status"] = running
    ended = pod_status.status(pod, {"c": container(0)}, **args)
    ready = {each["type"]: each for each in running["conditions"]}["Ready"]
    unready = {each["type"]: each for each in ended["conditions"]}["Ready"]
    assert (running["phase"], ready["status"], ready.get("reason")) == ("Running", "True", None)
    assert (ended["phase"], unready["status"], unready["reason"]) == ("Succeeded", "False", "PodCompleted")
    assert ended["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    waiting = pod_status.status(pod, {"c": None}, **args, message="no driver")
    assert waiting["containerStatuses"][0]["state"]["waiting"] == {
        "reason": "ContainerCreating",
        "message": "no driver",
    }


def write(directory: Path, name: str, *devices: str, kind: str = "example.com/gpu") -> None:
    made = [
        {"name": each, "containerEdits": {"env": [f"D_{each}=1"], "deviceNodes": [{"path": f"/dev/{each}"}]}}
        for each in devices
    ]
    edits = {
        "env": ["ALL=x"],
        "deviceNodes": [{"path": "/dev/ctl"}],
        "mounts": [{"hostPath": "/l", "containerPath": "/m"}],
    }
    spec = {"cdiVersion": "0.6.0", "kind": kind, "devices": made, "containerEdits": edits}
    (directory / name).write_text(json.dumps(spec))


def test_edits_of_spec_and_devices_are_merged_once(tmp_path: Path) -> None:
    write(tmp_path, "a.json", "g0", "g1")
    found = cdi.resolve(tmp_path, ["example.com/gpu=g1", "example.com/gpu=g0", "example.com/gpu=g1"])
    assert found.device_nodes == ("/dev/ctl", "/dev/g1", "/dev/g0")
    assert found.env == {"ALL": "x", "D_g1": "1", "D_g0": "1"}
    assert found.mounts == (("/l", "/m"),)
    assert cdi.resolve(tmp_path, []) == Edits()
