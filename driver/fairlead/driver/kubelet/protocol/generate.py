"""Generate generated/ from protos/: `python -m fairlead.driver.kubelet.protocol.generate --python PYTHON [--check]`.

Regenerates the committed code, or with --check verifies that it is current. PYTHON is an interpreter that has
grpcio-tools 1.74.0 and mypy-protobuf 3.6.0, in an environment of its own: code from newer tools would demand the newest
grpcio and protobuf at run time, and the tools are no dependency of the project. Nothing imports this at run time.

    python -m venv /tmp/protoc && /tmp/protoc/bin/pip install grpcio-tools==1.74.0 mypy-protobuf==3.6.0
    python -m fairlead.driver.kubelet.protocol.generate --python /tmp/protoc/bin/python
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
PROTOS = HERE / "protos"
GENERATED = HERE / "generated"
INIT = '"""Made by driver/fairlead/driver/kubelet/protocol/generate.py; not edited by hand."""\n'


def generate(python: Path, out: Path) -> None:
    """Write the modules and stubs of every .proto file into `out`."""
    env = {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    files = sorted(path.name for path in PROTOS.glob("*.proto"))
    outputs = [f"--{kind}_out={out}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
    command = [str(python), "-m", "grpc_tools.protoc", f"-I{PROTOS}", *outputs, *files]
    subprocess.run(command, check=True, env=env, cwd=PROTOS)  # noqa: S603 (the developer names the interpreter)
    for path in sorted(out.glob("*.py*")):
        # protoc writes `import x_pb2`, which works only with generated/ itself on sys.path.
        text = path.read_text()
        text = re.sub(r"^import (\w+_pb2)( as \w+)?$", r"from . import \1\2", text, flags=re.MULTILINE)
        path.write_text(text)
    (out / "__init__.py").write_text(INIT)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", type=Path, required=True, help="interpreter that has grpcio-tools")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if generated/ is out of date")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        fresh = Path(directory)
        generate(options.python, fresh)
        made = {path.name: path.read_text() for path in fresh.glob("*.py*")}
    kept = {path.name: path.read_text() for path in GENERATED.glob("*.py*")}
    if options.check:
        stale = sorted(name for name in made.keys() | kept.keys() if made.get(name) != kept.get(name))
        if stale:
            sys.stderr.write(f"{GENERATED}: out of date: {', '.join(stale)}; run this without --check\n")
        return 1 if stale else 0
    GENERATED.mkdir(exist_ok=True)
    for name in kept.keys() - made.keys():
        (GENERATED / name).unlink()
    for name, text in made.items():
        (GENERATED / name).write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
