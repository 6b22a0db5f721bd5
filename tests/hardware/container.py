"""Runs one command as a container would: a root of its own, with what CDI adds, and nothing else of the host's devices.

    python -I -S container.py SPEC.json

The root is an overlay over the host's directories, or over a directory given, so that a mount point which is missing is made there and not
on the host. Without a runtime (runc, crun) this program makes namespaces and device nodes itself. Everything is in a mount
namespace of its own, and gone with the process. A program: imports nothing of ours.

SPEC: {"scratch": DIR, "root": DIR or null, "keep": [DIR…], "command": […], "env": {…}, "nodes": [CDI deviceNodes…],
"mounts": [CDI mounts…], "runtime": PATH or null, "id": NAME}
"""

import ctypes
import json
import os
import signal
import stat
import sys

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWPID = 0x20000, 0x4000000, 0x8000000, 0x20000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_SLAVE = 1, 2, 4, 32, 4096, 16384, 1 << 19
PR_SET_PDEATHSIG = 1
OWN = ("dev", "proc", "sys", "tmp", "run", "var")  # a container has its own
USUAL = ("null", "zero", "full", "random", "urandom")
libc = ctypes.CDLL(None, use_errno=True)


def check(status, what):
    if status:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source, target, kind=None, flags=0, options=None):
    words = [None if each is None else os.fsencode(each) for each in (source, target, kind, options)]
    check(libc.mount(words[0], words[1], words[2], flags, words[3]), f"mount {target}")


def bind(source, target, read_only=False):
    mount(source, target, None, MS_BIND | MS_REC)
    if read_only:
        mount(None, target, None, MS_BIND | MS_REMOUNT | MS_RDONLY)


def place(path, like):
    """Make a mount point for the file or directory `like`."""
    if os.path.isdir(like):
        os.makedirs(path, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if not os.path.lexists(path):
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))


def within(root, path):
    """The path in the root, with links in it followed as the container follows them."""
    here = root
    parts = [part for part in reversed(path.split("/")) if part]
    for _ in range(200):
        if not parts:
            return here
        part = parts.pop()
        if part == "..":
            here = here if here == root else os.path.dirname(here)
        elif os.path.islink(f"{here}/{part}"):
            target = os.readlink(f"{here}/{part}")
            here = root if target.startswith("/") else here
            parts += [each for each in reversed(target.split("/")) if each not in ("", ".")]
        elif part != ".":
            here = f"{here}/{part}"
    raise OSError(f"{path}: too many links")


def overlay(lower, target, scratch, name):
    upper, work = f"{scratch}/upper-{name}", f"{scratch}/work-{name}"
    for each in (upper, work, target):
        os.makedirs(each, exist_ok=True)
    mount("overlay", target, "overlay", 0, f"lowerdir={lower},upperdir={upper},workdir={work}")


def make_root(spec):
    """The container's root, ready but for /dev and /proc. Returns its path."""
    scratch = spec["scratch"]
    mount("tmpfs", scratch, "tmpfs", 0, "mode=755")
    root = f"{scratch}/root"
    os.makedirs(root)
    if spec["root"]:
        overlay(spec["root"], root, scratch, "all")
    else:
        for name in sorted(os.listdir("/")):
            path = f"/{name}"
            if os.path.islink(path):
                os.symlink(os.readlink(path), f"{root}{path}")
            elif os.path.isdir(path) and name not in OWN:
                try:
                    overlay(path, f"{root}{path}", scratch, name)
                except OSError:  # its file system cannot be below an overlay
                    bind(path, f"{root}{path}", read_only=True)
    for name in OWN:
        os.makedirs(f"{root}/{name}", exist_ok=True)
    for path in spec["keep"]:
        target = within(root, path)
        place(target, path)
        bind(path, target, read_only=True)
    return root


def make_devices(root, nodes):
    mount("tmpfs", f"{root}/dev", "tmpfs", MS_NOSUID, "mode=755")
    os.makedirs(f"{root}/dev/shm")
    mount("tmpfs", f"{root}/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    for name in USUAL:
        make_node(f"{root}/dev/{name}", f"/dev/{name}", None, None, 0o666)
    for node in nodes:
        made = within(root, node["path"])
        os.makedirs(os.path.dirname(made), exist_ok=True)
        make_node(made, node.get("hostPath", node["path"]), node.get("major"), node.get("minor"), node.get("fileMode"))


def make_node(path, host_path, major, minor, mode):
    if os.path.lexists(path):
        return
    number = os.stat(host_path).st_rdev if major is None else os.makedev(major, minor)
    os.mknod(path, stat.S_IFCHR | (mode or 0o666), number)
    os.chmod(path, mode or 0o666)


def add_mounts(root, mounts):
    for each in mounts:
        target = within(root, each["containerPath"])
        place(target, each["hostPath"])
        bind(each["hostPath"], target, read_only="ro" in each.get("options", ()))


def start(spec):
    """In a process namespace of its own, all of which ends with its first process. Returns the exit code."""
    root = make_root(spec)
    check(libc.unshare(CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS), "unshare")
    child = os.fork()
    if child:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: os.kill(child, signal.SIGKILL))
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) % 256
    try:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if spec["runtime"]:
            mount("proc", "/proc", "proc")  # runc finds itself there
            start_by_runtime(spec, root)
        make_devices(root, spec["nodes"])
        mount("proc", f"{root}/proc", "proc")
        bind("/sys", f"{root}/sys", read_only=True)
        add_mounts(root, spec["mounts"])
        os.chroot(root)
        os.chdir("/")
        os.execvpe(spec["command"][0], spec["command"], spec["env"])
    except OSError as error:
        sys.stderr.write(f"container: {error}\n")
    os._exit(127)


def start_by_runtime(spec, root):
    """The same by runc or crun, for which only the root is made here. Replaces this process."""
    plain = ["nosuid", "noexec", "nodev"]
    mounts = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
        {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": [*plain, "mode=1777"]},
        {"destination": "/sys", "type": "none", "source": "/sys", "options": ["rbind", "ro"]},
    ]
    for each in spec["mounts"]:
        found = {"destination": each["containerPath"], "type": "none", "source": each["hostPath"]}
        mounts.append({**found, "options": each.get("options") or ["rbind"]})
    devices, rules = [], [{"allow": False, "access": "rwm"}]
    for node in spec["nodes"]:
        number = os.stat(node.get("hostPath", node["path"])).st_rdev if node.get("major") is None else None
        major = node["major"] if number is None else os.major(number)
        minor = node["minor"] if number is None else os.minor(number)
        mode = node.get("fileMode", 0o666)
        devices.append({"path": node["path"], "type": "c", "major": major, "minor": minor, "fileMode": mode})
        rules.append({"allow": True, "type": "c", "major": major, "minor": minor, "access": "rwm"})
    config = {
        "ociVersion": "1.0.2",
        "root": {"path": root},
        "hostname": spec["id"],
        "process": {
            "args": spec["command"],
            "cwd": "/",
            "env": [f"{name}={value}" for name, value in spec["env"].items()],
            "user": {"uid": 0, "gid": 0},
            "noNewPrivileges": True,
            "capabilities": {kind: [] for kind in ("bounding", "effective", "permitted")},
        },
        "mounts": mounts,
        "linux": {
            "namespaces": [{"type": kind} for kind in ("mount", "pid", "ipc", "uts")],
            "devices": devices,
            "resources": {"devices": rules},
        },
    }
    bundle = f"{spec['scratch']}/bundle"
    os.makedirs(bundle)
    with open(f"{bundle}/config.json", "w") as file:
        json.dump(config, file)
    words = [spec["runtime"], "--root", f"{spec['scratch']}/state", "run", "--bundle", bundle, spec["id"]]
    os.execv(words[0], words)


def main():
    with open(sys.argv[1]) as file:
        spec = json.load(file)
    try:
        check(libc.unshare(CLONE_NEWNS), "unshare the mounts")
        mount("none", "/", None, MS_REC | MS_SLAVE)
        return start(spec)
    except OSError as error:
        sys.stderr.write(f"container: {error}\n")
        return 127


if __name__ == "__main__":
    sys.exit(main())
