"""`python -m tests.hardware`, or `make gpu`: everything on one machine with an NVIDIA GPU, and a report of it.

Exit code 0: no check failed; 1: one did; 3: there is no GPU here. Settings of the GPU stay as they are unless `--settings` allows
to change them; then they are put back.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime as dt
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from fairlead.api.drivers import NVIDIA
from fairlead.driver.common.driver_root import DriverRoot
from fairlead.sandbox.ports import reserved
from tests.hardware import checks_devices, checks_load, checks_node, checks_settings, checks_shares, nvidia, runtime
from tests.hardware.report import Check, Line, checked, summary
from tests.hardware.settings import guarded
from tests.hardware.smi import SETTINGS, Smi
from tests.hardware.stage import stage

CHECKS: dict[str, Check] = {
    "discovery": checks_devices.discovery,
    "isolation": checks_devices.isolation,
    "CUDA": checks_devices.cuda,
    "one of several": checks_devices.only_one_of_several,
    "capabilities": checks_devices.capabilities,
    "load against nvidia-smi": checks_load.load,
    "driver killed under load": checks_load.restart,
    "Xid of a program": checks_load.xid,
    "shares side by side": checks_shares.side_by_side,
    "memory limit of a share": checks_shares.limits,
    "use of a share": checks_shares.use,
    "multiprocessors of a share": checks_shares.threads,
    "fault beside a share": checks_shares.fault_beside,
    "NCCL topology file": checks_node.nccl,
    "time slice": checks_settings.time_slice,
    "compute mode": checks_settings.compute_mode,
    "MIG mode": checks_settings.mig_mode,
    "smoke": checks_node.smoke,
    "leftovers": checks_node.leftovers,
}
OF_NVIDIAS_DRIVER: dict[str, Check] = {
    f"{name}, gpu.nvidia.com": CHECKS[name]
    for name in ("discovery", "isolation", "CUDA", "one of several", "leftovers")
}
ROOTS = (Path("/"), Path("/usr/local/nvidia"), Path("/run/nvidia/driver"), Path("/home/kubernetes/bin/nvidia"))
STANDIN = Path(__file__).resolve().with_name("standin")
NO_GPU = 3
NO_NVIDIA_DRIVER = (
    "NVIDIA_DRIVER=FILE names the gpu-kubelet-plugin of NVIDIA's DRA driver, and tries it in place of ours"
)
ENDED = 143  # by SIGTERM


def main(arguments: list[str] | None = None) -> int:
    given = _parsed(arguments)
    with tempfile.TemporaryDirectory(prefix="fl-") as path:
        if given.standin:
            _stand_in(given, Path(path))
        return _main(given)


def _stand_in(given: argparse.Namespace, state: Path) -> None:
    """Programs that are started from here on find the stand-in."""
    os.environ["GPU_STATE"] = str(state)
    before = filter(None, (os.environ.get("PYTHONPATH"),))
    os.environ["PYTHONPATH"] = os.pathsep.join((str(STANDIN), str(STANDIN.parents[2]), *before))
    given.smi, given.driver_root = str(STANDIN / "nvidia-smi"), state


def _main(given: argparse.Namespace) -> int:
    smi = _smi(given)
    if smi is None:
        print("no nvidia-smi here: name where NVIDIA's driver is, --driver-root DIR", file=sys.stderr)
        return NO_GPU
    try:
        before = smi.settings()
    except (OSError, subprocess.SubprocessError) as error:
        print(f"nvidia-smi does not answer: {error}", file=sys.stderr)
        return NO_GPU
    with guarded(smi) if given.settings else contextlib.nullcontext():
        try:
            lines, after = _checks(given, smi)
        except asyncio.CancelledError:
            return ENDED
    same = f"{', '.join(SETTINGS)} as before" if after == before else f"before {before}, after {after}"
    lines.append(Line(name="settings", result="ok" if after == before else "failed", detail=same, seconds=0))
    print(lines[-1])
    print(*summary(lines), sep="\n")
    return int(any(line.result == "failed" for line in lines))


def _checks(given: argparse.Namespace, smi: Smi) -> tuple[list[Line], list[tuple[str, ...]]]:
    """What was found, and the settings afterwards."""
    with tempfile.TemporaryDirectory(prefix="fl-") as path:
        lines = asyncio.run(_run(given, smi, Path(path)))
        if given.record is not None:
            _record(given.record)
    return lines, smi.settings()


async def _run(given: argparse.Namespace, smi: Smi, workdir: Path) -> list[Line]:
    kind, refused = runtime.choose(
        workdir / "trials", root=given.rootfs, environment=_environment(given), shared=_shared(given)
    )
    for each in smi.gpus():
        print(f"{each['name']}, {each['memory.total']} MiB, driver {each['driver_version']}, on {socket.gethostname()}")
    print(f"{dt.datetime.now(tz=dt.UTC):%Y-%m-%d %H:%M} UTC; containers: {kind}; not: {'; '.join(refused)}")
    lines: list[Line] = []
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        with reserved() as port:
            async with stage(
                kind=kind,
                smi=smi,
                workdir=workdir,
                driver_root=given.driver_root,
                settings=given.settings,
                port=port,
            ) as made:
                for name, check in CHECKS.items():
                    if not given.only or name in given.only:
                        lines.append(await checked(name, check, made))
                        print(lines[-1], flush=True)
        lines += await _of_nvidias_driver(given, smi, workdir / "n", kind)
    finally:
        if given.logs is not None:
            for logs in (workdir / "c/logs", workdir / "containers"):
                if logs.is_dir():
                    shutil.copytree(logs, given.logs / logs.name, dirs_exist_ok=True, ignore=_scratch)
    return lines


async def _of_nvidias_driver(given: argparse.Namespace, smi: Smi, workdir: Path, kind: runtime.Kind) -> list[Line]:
    """The same with NVIDIA's DRA driver in place of ours, where its kubelet plugin is named."""
    wanted = {name: check for name, check in OF_NVIDIAS_DRIVER.items() if not given.only or name in given.only}
    if not wanted:
        return []
    lines: list[Line] = []
    if given.nvidia_driver is None and not given.standin:
        lines.append(Line(name=NVIDIA, result="skipped", detail=NO_NVIDIA_DRIVER, seconds=0))
        print(lines[-1], flush=True)
        return lines
    workdir.mkdir()
    try:
        async with nvidia.stage(
            kind=kind, smi=smi, workdir=workdir, driver_root=given.driver_root, program=given.nvidia_driver
        ) as made:
            for name, check in wanted.items():
                lines.append(await checked(name, check, made))
                print(lines[-1], flush=True)
    except (AssertionError, OSError, TimeoutError) as error:
        lines.append(Line(name=NVIDIA, result="failed", detail=f"{type(error).__name__}: {error}", seconds=0))
        print(lines[-1], flush=True)
    return lines


def _scratch(directory: str, names: list[str]) -> list[str]:
    return [name for name in names if name == "scratch"]


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.hardware", description=__doc__)
    parser.add_argument("--driver-root", type=Path, help="where NVIDIA's driver is installed; default: looked for")
    parser.add_argument(
        "--rootfs", type=Path, help="a root file system for the containers, with python3; default: this host's"
    )
    parser.add_argument("--settings", action="store_true", help="change settings of the GPU, too, and put them back")
    parser.add_argument("--record", type=Path, help="write the machine as a profile into this file")
    parser.add_argument("--logs", type=Path, help="keep the programs' logs in this directory")
    parser.add_argument(
        "--only", action="append", choices=[*CHECKS, *OF_NVIDIAS_DRIVER], help="this check (several times: these)"
    )
    parser.add_argument(
        "--nvidia-driver",
        type=Path,
        metavar="FILE",
        help="gpu-kubelet-plugin of NVIDIA's DRA driver, which takes the place of ours in the second half",
    )
    parser.add_argument("--smi", help="the nvidia-smi to compare with; default: that of the driver")
    parser.add_argument("--standin", action="store_true", help="no GPU: what takes its place in CI")
    return parser.parse_args(arguments)


def _smi(given: argparse.Namespace) -> Smi | None:
    """nvidia-smi; and the driver's root, where it was not named."""
    for root in (given.driver_root,) if given.driver_root else ROOTS:
        path = DriverRoot(root).find_program("nvidia-smi")
        if path is not None or given.smi:
            given.driver_root = root
            return Smi((given.smi or str(root / (path or "")),))
    return None


def _environment(given: argparse.Namespace) -> tuple[tuple[str, str], ...]:
    if not given.standin:
        return ()
    known = {"GPU_STANDIN": str(STANDIN), "GPU_COUNT": "1", **os.environ}
    return tuple((name, known[name]) for name in ("GPU_STANDIN", "GPU_STATE", "GPU_COUNT"))


def _shared(given: argparse.Namespace) -> tuple[Path, ...]:
    return (Path(os.environ["GPU_STATE"]), STANDIN) if given.standin else ()


def _record(file: Path) -> None:
    subprocess.run([sys.executable, "-m", "fairlead", "record", str(file)], check=False)


if __name__ == "__main__":
    sys.exit(main())
