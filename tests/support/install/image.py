"""Executes the Dockerfile without docker: each step is an overlay on the one before, kept for the next run.

The base image is this machine: its /usr and the Python that runs the tests, both read-only, with an /etc of four files.
Steps see the machine's network and its settings of pip. A layer's key is all that it was made from (the base, the steps
before it, the files that it copies), so a changed source file repeats only the steps behind it.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.install.dockerfile import Stage, Step, stages
from tests.support.install.namespaces import Root, bind, in_root, unshared

STEP_TIMEOUT_S = 600
_ETC = ("ssl", "ld.so.cache", "nsswitch.conf", "ca-certificates.conf")
_ONLY_WHILE_BUILDING = ("resolv.conf", "hosts", "pip.conf")
_INHERITED = ("PIP_", "UV_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_")


class BuildError(Exception):
    """A step that failed, with what it printed."""


@dataclass(frozen=True)
class Image:
    """What comes out: layers to stack, lowest first, and what the machine lends (`binds`, read-only)."""

    layers: tuple[Path, ...]
    binds: tuple[Path, ...]
    stage: Stage


def build(source: Path, cache: Path) -> Image:
    """The last stage of source/Dockerfile. Raises BuildError."""
    made = _Builder(source, cache)
    for stage in stages((source / "Dockerfile").read_text(), {"PATH": made.path}):
        made.build(stage)
    made.prune()
    return Image(tuple(made.layers[stage.name]), made.binds, stage)


class _Builder:
    def __init__(self, source: Path, cache: Path) -> None:
        self._source, self._cache = source, cache
        interpreter = Path(sys.base_prefix)
        self.binds = (Path("/usr"),) if interpreter == Path("/usr") else (Path("/usr"), interpreter)
        self.path = f"{interpreter / 'bin'}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        self.layers: dict[str, list[Path]] = {}
        self._used: set[str] = set()

    def build(self, stage: Stage) -> None:
        key, made = f"{sys.version} {sys.base_prefix} {stage.base}", list[Path]()
        for step in (Step("BASE", "", {}, "/"), *stage.steps):
            key = self._key(key, step)
            made.append(self._layer(key, step, made))
        self.layers[stage.name] = made

    def prune(self) -> None:
        """Layers that this build did not use go."""
        for each in self._cache.iterdir():
            if each.name not in self._used:
                shutil.rmtree(each)

    def _key(self, before: str, step: Step) -> str:
        made = hashlib.sha256(f"{before}\n{step}".encode())
        if step.instruction == "COPY":
            stage, sources, _ = _copied(step)
            if stage:
                made.update(str(self.layers[stage][-1]).encode())
            for name, path in () if stage else self._context(sources):
                made.update(name.encode() + b"\0" + path.read_bytes())
        return made.hexdigest()[:16]

    def _layer(self, key: str, step: Step, below: list[Path]) -> Path:
        self._used.add(key)
        folder = self._cache / key
        if (folder / "done").exists():
            return folder / "files"
        shutil.rmtree(folder, ignore_errors=True)
        for name in ("files", "work", "root", "from"):
            (folder / name).mkdir(parents=True)
        if step.instruction == "BASE":
            self._base(folder / "files")
        else:
            root = Root(layers=tuple(below), path=folder / "root", upper=folder / "files", work=folder / "work")
            self._run(step, root, folder)
        for name in ("root", "from"):
            (folder / name).rmdir()
        (folder / "done").touch()
        return folder / "files"

    def _base(self, files: Path) -> None:
        """The directories of a small Debian, this machine's links into /usr, and where it lends its own files."""
        for name in ("dev", "etc", "home", "proc", "root", "run", "sys", "tmp", "var/tmp", "var/lib"):
            (files / name).mkdir(parents=True)
        (files / "tmp").chmod(0o1777)
        (files / "var/tmp").chmod(0o1777)
        (files / "var/run").symlink_to("/run")
        for name in ("bin", "sbin", "lib", "lib64"):
            link = Path("/", name)
            if link.is_symlink():
                (files / name).symlink_to(link.readlink())
        for each in self.binds:
            (files / each.relative_to("/")).mkdir(parents=True)
        for name in _ETC:
            found = Path("/etc", name)
            if found.is_dir():
                shutil.copytree(found, files / "etc" / name, symlinks=True, ignore=shutil.ignore_patterns("private"))
            elif found.exists():
                shutil.copy(found, files / "etc" / name)
        for name in _ONLY_WHILE_BUILDING:
            (files / "etc" / name).touch()  # what the machine's is mounted on
        (files / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        (files / "etc/group").write_text("root:x:0:\n")

    def _run(self, step: Step, root: Root, folder: Path) -> None:
        lines = [root.script(), *(bind(each, f"{root.path}{each}", read_only=True) for each in self.binds)]
        if step.instruction == "RUN":
            lines += [f"mount -t proc proc {root.path}/proc", bind("/dev", root.path / "dev", recursive=True)]
            names = [name for name in _ONLY_WHILE_BUILDING if Path("/etc", name).exists()]
            lines += [bind(f"/etc/{name}", f"{root.path}/etc/{name}", read_only=True) for name in names]
            lines.append(f"mount -t tmpfs tmpfs {root.path}/tmp")
            command = ["/bin/sh", "-c", f"cd {step.workdir}; {step.arguments}"]
            environment = {"HOME": "/root"} | dict(step.environment)
            environment |= {name: value for name, value in os.environ.items() if name.startswith(_INHERITED)}
            lines.append(in_root(root.path, environment.items(), command))
        elif step.instruction == "WORKDIR":
            lines.append(f"mkdir -p {root.path}{step.workdir}")
        else:
            lines += self._copy(step, root, folder)
        script = "\n".join(lines)
        done = subprocess.run(
            unshared(script, new=("--mount", "--pid")),
            capture_output=True,
            text=True,
            timeout=STEP_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            printed = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
            raise BuildError(f"{step.instruction} {step.arguments}: status {done.returncode}:\n{printed}")

    def _copy(self, step: Step, root: Root, folder: Path) -> Iterator[str]:
        stage, sources, target = _copied(step)
        into = root.path / (target if target.startswith("/") else f"{step.workdir}/{target}").strip("/")
        if stage:
            other = Root(layers=tuple(self.layers[stage]), path=folder / "from")
            (source,) = sources
            yield other.script()
            yield f"mkdir -p {into.parent} && cp -a {folder / 'from'}{source} {into}"
            return
        staged = folder / "context"
        for name, path in self._context(sources):
            # Of a folder what is in it is copied, a file under its own name.
            (source,) = (each for each in sources if name == each or name.startswith(f"{each}/"))
            placed = staged / (Path(name).name if name == source else Path(name).relative_to(source))
            placed.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, placed)
        yield f"mkdir -p {into} && cp -r {staged}/. {into}/ && rm -rf {staged}"

    def _context(self, sources: list[str]) -> list[tuple[str, Path]]:
        """Files that .dockerignore lets through, below the sources, by name."""
        rules = [
            line for line in (self._source / ".dockerignore").read_text().splitlines() if line[:1] not in {"", "#"}
        ]
        found = []
        for source in sources:
            start = self._source / source
            for path in sorted(start.rglob("*")) if start.is_dir() else [start]:
                name = str(path.relative_to(self._source))
                if path.is_file() and _sent(name, rules):
                    found.append((name, path))
        return found


def _copied(step: Step) -> tuple[str, list[str], str]:
    """(stage to copy from or "", sources, target)."""
    words = step.arguments.split()
    stage = ""
    if words[0].startswith("--from="):
        stage = words.pop(0).removeprefix("--from=")
    return stage, words[:-1], words[-1]


def _sent(name: str, rules: list[str]) -> bool:
    """Whether .dockerignore lets a file into the context: the last rule that matches it, or a folder above it, decides."""
    sent = True
    above = [name, *(str(each) for each in Path(name).parents if str(each) != ".")]
    for rule in rules:
        pattern = rule.removeprefix("!").rstrip("/")
        tail = pattern.removeprefix("**/")
        for each in above:
            if fnmatch.fnmatchcase(each, pattern) or (tail != pattern and fnmatch.fnmatchcase(Path(each).name, tail)):
                sent = rule.startswith("!")
                break
    return sent
