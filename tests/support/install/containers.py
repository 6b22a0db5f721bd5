"""Runs a pod of Fairlead as its manifest says: the image's files, its user and rights, its volumes, its limit, its network.

Each is a process in namespaces of its own, made by unshare(1) and setpriv(1). The root is read-only where the manifest says
so; nothing but the manifest's volumes is mounted beside what every container runtime mounts (/proc, /sys, /dev, a few files
of /etc, the token). Not applied: seccomp, CPU limits.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from fairlead.sandbox.install.pod_commands import environment_of, expanded, only_container
from fairlead.sandbox.install.pod_files import PodFiles
from fairlead.sandbox.install.programs import ProgramError
from fairlead.sandbox.install.workloads import Started
from fairlead.sandbox.objects import Obj, name_of, node_name_of, spec_of
from tests.support.install import network, security
from tests.support.install.image import Image
from tests.support.install.memory import MemoryLimit
from tests.support.install.namespaces import Root, bind, in_root, unshared
from tests.support.install.network import Network
from tests.support.install.probes import Probing
from tests.support.install.volumes import Mount, Volumes

STARTED_S = 20.0
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")


@dataclass(kw_only=True)
class Container:
    """A pod's process. `status` is its exit status, negative for a signal; `probing` is what kubelet sees of it."""

    name: str
    log: Path
    grace_s: float
    process: asyncio.subprocess.Process
    network: Network
    memory: MemoryLimit | None
    exited: asyncio.Event = field(default_factory=asyncio.Event)
    status: int | None = None
    probing: Probing | None = None
    watching: asyncio.Task[None] | None = None
    pid: int = 0
    """Of the program, on this machine."""

    async def ready(self, timeout_s: float) -> None:
        """Until its readiness probe succeeds. Raises ProgramError."""
        assert self.probing is not None
        try:
            async with asyncio.timeout(timeout_s):
                await self.probing.ready.wait()
        except TimeoutError:
            raise self.failure(timeout_s) from None

    def failure(self, waited_s: float) -> ProgramError:
        what = f"ended with status {self.status}" if self.exited.is_set() else f"is not ready after {waited_s:.0f} s"
        text = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
        return ProgramError(f"{self.name} {what}; its log ends with:\n{text}")

    async def stop(self) -> None:
        """As kubelet: SIGTERM, and SIGKILL after the pod's grace period."""
        if not self.exited.is_set():
            os.kill(self.pid, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.grace_s):
                    await self.exited.wait()
        await self.kill()

    async def kill(self) -> None:
        if self.probing is not None:
            await self.probing.stop()
        if not self.exited.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            await self.exited.wait()
        if self.watching is not None:
            await self.watching
        await self.network.close()


@dataclass(kw_only=True)
class Containers:
    """The container runtimes of all nodes. `host_paths(node)`: directories of a node and where they are on this machine."""

    image: Image
    files: PodFiles
    workdir: Path
    host_paths: Callable[[str], Mapping[str, Path]]
    started: list[Container] = field(default_factory=list)

    async def start(self, pod: Obj) -> Started:
        """Raises ProgramError where it cannot be started; it may end at once all the same."""
        container, name = only_container(pod), name_of(pod)
        folder = self.workdir / name
        (folder / "root").mkdir(parents=True)
        environment = self._environment(pod, container)
        volumes = Volumes(pod=pod, workdir=folder, files=self.files, host_paths=self.host_paths(node_name_of(pod)))
        mounts = await volumes.mounts(container)
        memory = MemoryLimit.of(container, name)
        entry = container.get("command") or self.image.stage.entrypoint
        arguments = container.get("args") or (() if container.get("command") else self.image.stage.command)
        command = [expanded(str(each), environment, pod) for each in (*entry, *arguments)]
        rights = security.flags(pod, container, self.image.stage.user)
        setpriv = shutil.which("setpriv")
        assert setpriv is not None
        lines = [
            *(memory.script() if memory else ()),
            *self._root(container, folder, mounts),
            "echo started; read go",
            in_root(folder / "root", environment.items(), [setpriv, *rights, "--", *command]) + " < /dev/null",
        ]
        new = ["--mount", "--net", "--ipc", "--uts", *(() if spec_of(pod).get("hostPID") else ("--pid",))]
        log = folder / "log"
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                *unshared("\n".join(lines), new=new),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        made = Container(
            name=name,
            log=log,
            grace_s=float(spec_of(pod).get("terminationGracePeriodSeconds", 30)),
            process=process,
            network=Network(process.pid),
            memory=memory,
        )
        self.started.append(made)
        return Started(made, await self._connect(made, container))

    async def _connect(self, made: Container, container: Mapping[str, Any]) -> dict[int, int]:
        """Lets the program start, once it has its network; returns the port of this machine for each of its own."""
        process = made.process
        assert process.stdout is not None
        assert process.stdin is not None
        async with asyncio.timeout(STARTED_S):
            said = await process.stdout.readline()
        if said != b"started\n":
            made.status = await process.wait()
            made.exited.set()
            raise made.failure(0)
        apiserver = urlsplit(self.files.url)
        assert apiserver.hostname is not None
        assert apiserver.port is not None
        await made.network.open((apiserver.hostname, apiserver.port))
        ports = [int(each["containerPort"]) for each in container.get("ports") or ()]
        forwarded = {port: await made.network.forward(port) for port in ports}
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        (made.pid,) = (int(each) for each in children)
        made.probing = Probing(container, made.network.dial)
        process.stdin.write(b"\n")
        process.stdin.close()
        made.watching = asyncio.create_task(_watched(made))
        made.probing.start()
        return forwarded

    def _environment(self, pod: Obj, container: Mapping[str, Any]) -> dict[str, str]:
        """Of the image, of the runtime, of kubelet, and of the manifest, which counts most."""
        return {
            **self.image.stage.environment,
            "HOME": "/root" if _uid(pod, container, self.image.stage.user) == 0 else "/",
            "HOSTNAME": name_of(pod),
            "KUBERNETES_SERVICE_HOST": network.SERVICE_IP,
            "KUBERNETES_SERVICE_PORT": str(network.SERVICE_PORT),
            **environment_of(pod, container),
        }

    def _root(self, container: Mapping[str, Any], folder: Path, mounts: list[Mount]) -> list[str]:
        """The lines that mount the container's root at folder/root."""
        root, own = folder / "root", folder / "mountpoints"
        targets = [*(PurePosixPath(each) for each in ("/proc", "/sys", "/dev")), *(mount.target for mount in mounts)]
        for target in targets:
            _inside(own, target).mkdir(parents=True, exist_ok=True)
        layers, changes = (*self.image.layers, own), folder / "changes"
        if (container.get("securityContext") or {}).get("readOnlyRootFilesystem"):
            stacked = Root(layers=layers, path=root)
        else:
            for each in ("upper", "work"):
                (changes / each).mkdir(parents=True)
            stacked = Root(layers=layers, path=root, upper=changes / "upper", work=changes / "work")
        privileged = (container.get("securityContext") or {}).get("privileged")
        lines = [
            stacked.script(),
            *(bind(each, f"{root}{each}", read_only=True) for each in self.image.binds),
            f"mount -t proc proc {root}/proc",
            bind("/sys", root / "sys", recursive=True) if privileged else f"mount -t sysfs -o ro sysfs {root}/sys",
            f"mount -t tmpfs -o mode=755,size=64k tmpfs {root}/dev",
            f"mkdir {root}/dev/shm && mount -t tmpfs -o mode=1777,size=64m tmpfs {root}/dev/shm",
            *(f"touch {root}/dev/{each} && {bind(f'/dev/{each}', root / 'dev' / each)}" for each in DEVICES),
            f"ln -s /proc/self/fd {root}/dev/fd",
        ]
        for mount in mounts:
            at = _inside(root, mount.target)
            lines.append(bind(mount.source, at, read_only=mount.read_only, recursive=not mount.read_only))
        return lines


async def _watched(made: Container) -> None:
    """Writes what the program prints to its log, and notes how it ended."""
    assert made.process.stdout is not None
    with made.log.open("ab") as log:
        while data := await made.process.stdout.read(65536):
            log.write(data)
            log.flush()
    made.status = await made.process.wait()
    if made.memory is not None:
        made.memory.remove()
    made.exited.set()


def _inside(root: Path, path: PurePosixPath) -> Path:
    """The path in a root; /var/run is a link to /run there."""
    return root / re.sub(r"^/var/run(?=/|$)", "/run", str(path)).lstrip("/")


def _uid(pod: Obj, container: Mapping[str, Any], image_user: str) -> int:
    settings = {**(spec_of(pod).get("securityContext") or {}), **(container.get("securityContext") or {})}
    return int(settings.get("runAsUser", image_user.partition(":")[0]))
