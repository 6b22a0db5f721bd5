"""The image without docker or root: an OCI archive from Debian's packages, wheels and this tree, which `ctr images import` and registries take.

    python tools/image_archive.py build FILE [--name NAME:TAG]     # no root, no daemon: Linux on x86-64 with pip
    python tools/image_archive.py lock                             # pins Debian's packages as they are today (lock/debian.txt)

Three layers, so that a new version of Fairlead changes the last alone: Debian's Python with what it needs, its packages pinned by digest; the
wheels of lock/image.txt; Fairlead. It has what the Dockerfile's image has, less a shell and package tools. Bytecode is written now, since a
read-only root keeps none. Files bear the time of the commit and are packed by name: the same commit gives the same digest.
Packages come from $DEBIAN_MIRROR (default deb.debian.org), and once they are gone there, from snapshot.debian.org.
"""

from __future__ import annotations

import argparse
import datetime as dt
import gzip
import hashlib
import io
import json
import lzma
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from release import source_date
from release_notes import Refused

from fairlead.api.version import VERSION

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "lock" / "debian.txt"
MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org")
SNAPSHOT = "http://snapshot.debian.org/archive"
SUITES = (
    "debian-security bookworm-security",
    "debian bookworm",
)  # archive and suite; the first that has a package gives it
PACKAGES = (
    "ca-certificates", "libbz2-1.0", "libc6", "libcrypt1", "libexpat1", "libffi8", "libgcc-s1", "liblzma5", "libpython3.11-minimal",
    "libpython3.11-stdlib", "libsqlite3-0", "libssl3", "libstdc++6", "libuuid1", "python3.11-minimal", "zlib1g",
)  # fmt: skip
PYTHON = "3.11"
HOME = "opt/fairlead"
SITE = f"{HOME}/lib/python{PYTHON}/site-packages"
LOADER = "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
SOURCES = ("lib", "engine", "history", "driver", "webhook", "controller", "ui", "cli")
"""What runs in a cluster, as in the Dockerfile."""
BUILD_ONLY = ("editables", "hatchling")
UNUSED = ("usr/share/doc/", "usr/share/man/", "usr/share/lintian/", "usr/share/locale/", "usr/share/bug/", "usr/sbin/")
ENVIRONMENT = (
    f"PATH=/{HOME}/bin:/usr/bin",
    "PYTHONUNBUFFERED=1",
    "PYTHONDONTWRITEBYTECODE=1",
    f"PYTHONPYCACHEPREFIX=/{HOME}/compiled",
)


class Package(NamedTuple):
    """A .deb: its path below an archive (`debian/pool/…`) and the digest of its bytes."""

    path: str
    sha256: str


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="image_archive.py", description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(required=True, dest="command")
    build = commands.add_parser("build", help="write the archive, and print the digest of the image")
    build.add_argument("file", type=Path)
    build.add_argument("--name", default=f"docker.io/library/fairlead:{VERSION}", help="what importing calls it")
    commands.add_parser("lock", help="pin Debian's packages as they are today")
    options = parser.parse_args(arguments)
    try:
        if options.command == "lock":
            LOCK.write_text(locked())
        else:
            print(archive(options.file, options.name))
    except (Refused, OSError, subprocess.CalledProcessError) as error:
        print(f"image_archive: {error}", file=sys.stderr)
        return 1
    return 0


def archive(file: Path, name: str) -> str:
    """Writes the image; returns its digest. Raises Refused with the next step."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise Refused("the archive is made on Linux on x86-64; elsewhere use docker, podman or buildah: make image")
    epoch = source_date()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "root")
        layers = []
        for fill in (_debian, _wheels, _fairlead):
            before = set(_files(root))
            fill(root)
            layers.append(_layer(root, [path for path in _files(root) if path not in before], epoch))
        return _write(file, name, layers, epoch)


# --- what is in it


def _debian(root: Path) -> None:
    for name in (
        "usr/bin",
        "usr/lib",
        "usr/lib64",
        "usr/sbin",
        "etc/ssl/certs",
        "run",
        "tmp",
        "var",
        "proc",
        "sys",
        "dev",
    ):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        (root / name).symlink_to(f"usr/{name}")
    (root / "tmp").chmod(0o1777)
    (root / "var/run").symlink_to("/run")
    since, packages = read_lock(LOCK.read_text())
    for package in packages:
        _unpack(_fetched(package, since), root)
    authorities = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    (root / "etc/ssl/certs/ca-certificates.crt").write_text("".join(each.read_text() for each in authorities))
    (root / "usr/lib/ssl").mkdir()
    (root / "usr/lib/ssl/cert.pem").symlink_to("/etc/ssl/certs/ca-certificates.crt")
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/\nnonroot:x:65532:65532:nonroot:/:/\n")
    (root / "etc/group").write_text("root:x:0:\nnonroot:x:65532:\n")
    (root / "etc/nsswitch.conf").write_text("hosts: files dns\n")
    _compile(root, f"usr/lib/python{PYTHON}")


def _wheels(root: Path) -> None:
    (root / HOME / "bin").mkdir(parents=True)
    (root / HOME / "bin/python").symlink_to(f"/usr/bin/python{PYTHON}")
    (root / HOME / "pyvenv.cfg").write_text(
        f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {PYTHON}\n"
    )
    _install(root, "--require-hashes", "-r", str(ROOT / "lock" / "image.txt"))
    for each in BUILD_ONLY:
        for path in (root / SITE).glob(f"{each}*"):
            shutil.rmtree(path)
    _compile(root, SITE)


def _fairlead(root: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        ignore = shutil.ignore_patterns("__pycache__")
        for name in SOURCES:
            shutil.copytree(ROOT / name, tree / name, ignore=ignore)
        for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, tree)
        _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, str(tree))
        (wheel,) = Path(folder).glob("*.whl")
        _install(root, "--no-deps", str(wheel))
    script = root / HOME / "bin/fairlead"
    script.write_text(f"#!/{HOME}/bin/python\nfrom fairlead.cli.main import main\n\nmain()\n")
    script.chmod(0o755)
    _compile(root, f"{SITE}/fairlead")


def _install(root: Path, *what: str) -> None:
    """Into the image's site-packages, for its Python whatever runs this. Scripts of packages are left out: they name this machine's Python."""
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in range(36, 16, -1)]
    platforms += ["--platform=manylinux2014_x86_64", "--platform=linux_x86_64"]
    target = ["--target", str(root / SITE), "--no-compile", "--only-binary=:all:", "--upgrade"]
    _pip("install", *target, "--python-version", PYTHON, "--implementation", "cp", *platforms, *what)
    shutil.rmtree(root / SITE / "bin", ignore_errors=True)
    for place in (root / SITE).glob("*.dist-info/direct_url.json"):  # where the wheel lay on this machine
        place.unlink()
        record = place.with_name("RECORD")
        kept = [line for line in record.read_text().splitlines(keepends=True) if place.name not in line]
        record.write_text("".join(kept))


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        raise Refused(f"pip {arguments[0]} failed:\n" + "\n".join(done.stderr.strip().splitlines()[-10:]))


def _compile(root: Path, folder: str) -> None:
    """Bytecode of a folder, by the image's own Python, to where the image's environment looks for it."""
    skip = r"/(test|tests|idlelib|lib2to3|tkinter|turtledemo|ensurepip)/" if folder.startswith("usr/") else "^$"
    with tempfile.TemporaryDirectory() as made:
        # What it imports itself must not be written: that would be bound to the times of files here.
        environment = {"PYTHONHOME": f"{root}/usr", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        loader = [f"{root}/{LOADER}", "--library-path", f"{root}/usr/lib/x86_64-linux-gnu"]
        command = [*loader, f"{root}/usr/bin/python{PYTHON}", "-X", f"pycache_prefix={made}", "-m", "compileall", "-q"]
        options = ["-x", skip, "-s", str(root), "-p", "/", "--invalidation-mode", "unchecked-hash", f"{root}/{folder}"]
        subprocess.run([*command, *options], check=True, env=environment, stdout=subprocess.DEVNULL)
        shutil.copytree(Path(made, *root.parts[1:], folder), root / HOME / "compiled" / folder, dirs_exist_ok=True)


def _unpack(package: bytes, root: Path) -> None:
    """The files of a .deb, below usr where Debian 12 still packs them beside it; documentation is left out."""
    with tarfile.open(fileobj=io.BytesIO(_data(package))) as files:
        for member in files:
            name = member.name.removeprefix("./")
            if name.split("/", 1)[0] in {"bin", "lib", "lib64", "sbin"}:
                name = f"usr/{name}"
            if not name or name.startswith(UNUSED) or member.isdir():
                continue
            member.name = name
            files.extract(member, root, filter="tar")


def _data(package: bytes) -> bytes:
    """data.tar of a .deb, an ar archive: `!<arch>`, then a header of 60 bytes before each file, which begin at even places."""
    at = 8
    while at < len(package):
        name, size = package[at : at + 16].decode().strip(), int(package[at + 48 : at + 58])
        if name == "data.tar.xz":
            return lzma.decompress(package[at + 60 : at + 60 + size])
        at += 60 + size + size % 2
    raise Refused("a .deb without data.tar.xz: another way of packing than Debian 12's")


# --- layers, and the archive


def _files(root: Path) -> Iterator[str]:
    for at, folders, names in os.walk(root):
        for name in (*folders, *names):
            yield str(Path(at, name).relative_to(root))


def _layer(root: Path, paths: Sequence[str], epoch: int) -> bytes:
    """A tar file: by name, of root, with one time and no names of users."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as files:
        for path in sorted(paths):
            member = files.gettarinfo(str(root / path), arcname=path)
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime = epoch
            if member.isfile() or member.islnk():
                member.type, member.linkname = tarfile.REGTYPE, ""
                member.size = (root / path).stat().st_size
                with (root / path).open("rb") as content:
                    files.addfile(member, content)
            else:
                files.addfile(member)
    return packed.getvalue()


def _write(file: Path, name: str, layers: Sequence[bytes], epoch: int) -> str:
    """The OCI layout of the image as one tar file (image-spec v1.1, image-layout.md)."""
    blobs: dict[str, bytes] = {}

    def blob(content: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "User": "65532:65532",
            "Env": list(ENVIRONMENT),
            "Entrypoint": ["fairlead"],
            "Cmd": ["--help"],
            "Labels": {"org.opencontainers.image.title": "Fairlead", "org.opencontainers.image.licenses": "Apache-2.0"},
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(each).hexdigest()}" for each in layers]},
    }
    packed = [blob(gzip.compress(each, 6, mtime=0), "layer.v1.tar+gzip") for each in layers]
    manifest = blob(
        _json(
            {
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": blob(_json(config), "config.v1+json"),
                "layers": packed,
            }
        ),
        "manifest.v1+json",
    )
    names = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
    index = {"schemaVersion": 2, "manifests": [manifest | {"annotations": names}]}
    entries = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": _json(index), **blobs}
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f".{file.name}.new")
    with tarfile.open(new, "w") as archive:
        for path in sorted(entries):
            member = tarfile.TarInfo(path)
            member.size, member.mtime, member.mode = len(entries[path]), epoch, 0o644
            archive.addfile(member, io.BytesIO(entries[path]))
    new.replace(file)
    return str(manifest["digest"])


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


# --- Debian's packages


def read_lock(text: str) -> tuple[str, list[Package]]:
    """When it was written, in snapshot.debian.org's form, and the packages. Raises Refused at a line that is no path and digest."""
    since = next((line.split()[-1] for line in text.splitlines() if line.startswith("# as of ")), "")
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if line and not line.startswith("#"):
            path, _, digest = line.partition(" sha256:")
            if not path.endswith(".deb") or len(digest) != 64:
                raise Refused(f"lock/debian.txt: line {number}: {line!r} is no path and digest; `make lock` writes it")
            found.append(Package(path, digest))
    return since, found


def _fetched(package: Package, since: str) -> bytes:
    """The bytes of a package, from an earlier run or a server. Raises Refused where none gives those that are pinned."""
    cache = Path(sys.prefix) / ".debian" / package.sha256
    if cache.exists():
        return cache.read_bytes()
    area, _, rest = package.path.partition("/")
    problems = []
    for url in (f"{MIRROR}/{package.path}", f"{SNAPSHOT}/{area}/{since}/{rest}"):
        try:
            content = _get(url)
        except OSError as error:
            problems.append(f"{url}: {error}")
            continue
        if hashlib.sha256(content).hexdigest() == package.sha256:
            cache.parent.mkdir(exist_ok=True)
            new = cache.with_suffix(".new")
            new.write_bytes(content)
            new.replace(cache)
            return content
        problems.append(f"{url}: not the bytes that lock/debian.txt pins")
    raise Refused("a package of Debian's cannot be had; set DEBIAN_MIRROR:\n  " + "\n  ".join(problems))


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - http of a mirror; what is read is checked by digest
        return bytes(answer.read())


def locked() -> str:
    """lock/debian.txt for the packages that the suites have now."""
    found: dict[str, Package] = {}
    for suite in SUITES:
        area, name = suite.split()
        index = lzma.decompress(_get(f"{MIRROR}/{area}/dists/{name}/main/binary-amd64/Packages.xz")).decode()
        newest: dict[str, tuple[str, Package]] = {}
        for entry in index.split("\n\n"):
            fields = dict(line.split(": ", 1) for line in entry.splitlines() if ": " in line and line[0] != " ")
            if fields.get("Package") in PACKAGES:
                newest[fields["Package"]] = (
                    fields["Version"],
                    Package(f"{area}/{fields['Filename']}", fields["SHA256"]),
                )
        found = {package: each for package, (_, each) in newest.items()} | found
    if missing := sorted(set(PACKAGES) - found.keys()):
        raise Refused(f"the suites lack {', '.join(missing)}")
    head = f"# Debian 12's packages of `make image-archive`; `make lock` writes this.\n# as of {dt.datetime.now(dt.UTC):%Y%m%dT%H%M%SZ}\n"
    return head + "".join(f"{found[name].path} sha256:{found[name].sha256}\n" for name in sorted(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
