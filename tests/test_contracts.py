"""The import contracts of pyproject.toml catch what they forbid: each import below is planted in a copy of the source.

And what no import tells: that only `fairlead.bounded` reads YAML, JSON and gzip of others, and that only `fairlead.cli.printer` prints.
"""

import ast
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["dev-mode-dirs"]
PLANTED = [
    # importer, imported, the contract that must break
    ("driver", "fairlead.webhook", "Dependencies run downwards only"),
    ("webhook", "fairlead.engine.plan", "Driver and webhook do without the engine"),
    ("engine", "fairlead.kube.client", "Of kube the engine imports only"),
    ("engine", "time", "Decisions are pure"),
    ("engine.placement.value", "fairlead.engine.placement.search.placer", "Inside placement"),
]


@pytest.mark.slow
def test_forbidden_imports_are_found(tmp_path):
    for root in ROOTS:
        shutil.copytree(ROOT / root, tmp_path / root, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for importer, imported, _ in PLANTED:
        package = tmp_path / importer.partition(".")[0] / "fairlead" / importer.replace(".", "/")
        (package / f"planted_{imported.replace('.', '_')}.py").write_text(f"import {imported}\n")
    run = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    code = "import sys; sys.path[:0] = sys.argv[1:]; del sys.argv[1:]; sys.argv += ['--no-cache']; " + run
    done = subprocess.run(
        [sys.executable, "-c", code, *(str(tmp_path / root) for root in ROOTS)],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    output = " ".join(done.stdout.split())
    assert done.returncode == 1, done.stdout + done.stderr
    for importer, imported, contract in PLANTED:
        planted = f"fairlead.{importer}.planted_{imported.replace('.', '_')} -> {imported}"
        assert planted in output, done.stdout
        assert f"{contract}" in output.split("Broken contracts")[1]


READERS = {"load", "loads", "load_all", "safe_load", "safe_load_all", "full_load", "unsafe_load", "compose", "compose_all", "parse", "scan", "decode",
           "Decoder", "JSONDecoder", "decompress", "decompressobj", "open", "GzipFile"}  # fmt: skip
FORMATS = {"yaml", "json", "gzip", "zlib", "bz2", "lzma", "msgspec", "msgspec.json"}
TYPED = "typed, of the apiserver; the transport bounds the body, and a depth beyond the interpreter's is caught"
STATE = "this node's own state, written by this program, at most some kilobytes of it read"
ANSWER = "the answer of a webhook to this machine's own sandbox; the client bounds its size"
COPY = "a copy of what was just encoded"
SERVED = "an answer of this machine's own apiserver; the transport bounds the body"
OWN = "lines between our own processes"
REPOSITORY = "files of this repository, and what helm made of them"
UNREAD = {
    "tools/image_archive.py": "packages of Debian's, after their digests were compared; an index of a mirror that its user names",
    "lib/fairlead/api/claim_sources.py": "an annotation: at most VALUE_CHARS_MAX characters, RecursionError caught",
    "lib/fairlead/api/repair.py": "an annotation, typed; RecursionError caught",
    "lib/fairlead/api/withheld.py": "an annotation, typed with maxima; RecursionError caught",
    "lib/fairlead/kube/nulls.py": TYPED,
    "lib/fairlead/kube/watching.py": TYPED,
    "driver/fairlead/driver/backend/simulated/fault_file.py": "a simulated node's own file, typed",
    "driver/fairlead/driver/backend/simulated/state.py": STATE,
    "driver/fairlead/driver/layouts/cutter.py": STATE,
    "driver/fairlead/driver/prepare/checkpoint.py": STATE,
    "driver/fairlead/driver/publish/faults.py": STATE,
    "driver/fairlead/driver/repair/state.py": STATE,
    "webhook/fairlead/webhook/certificates/served.py": "the webhook's own Secret, of at most a mebibyte",
    "webhook/fairlead/webhook/review/envelope.py": "a review, of at most some mebibytes, cut by nesting.bounded",
    "webhook/fairlead/webhook/review/verdict.py": COPY,
    "controller/fairlead/controller/accounting/allocation_child.py": "the question of our own process",
    "controller/fairlead/controller/forecasting/history.py": "the controller's own ConfigMap, of at most a mebibyte, typed",
    "controller/fairlead/controller/gangs/evictions/eviction_marks.py": "an annotation, of at most 256 KiB",
    "engine/fairlead/engine/types/values.py": "makes decoders, which json_text.decode uses",
    "history/fairlead/history/facts/snapshot_file.py": "makes decoders, which json_text.decode uses",
    "history/fairlead/history/recording/records.py": "makes decoders, which json_text.decode uses",
    "history/fairlead/history/recording/segment.py": "the head of a record that json_text.decode has let pass",
    "history/fairlead/history/ledger/store/rows.py": "a cell of the ledger, which this program wrote",
    "ui/fairlead/ui/access/tokens.py": "a token, of at most a request's head",
    "ui/fairlead/ui/serve/what_if.py": "the answer of our own process",
    "ui/fairlead/ui/what_if/child.py": "the question of our own process; its manifests are a text in it",
    "sandbox/fairlead/sandbox/files.py": "the package's own tables",
    "sandbox/fairlead/sandbox/apiserver/admission/calling.py": ANSWER,
    "sandbox/fairlead/sandbox/apiserver/admission/webhooks.py": ANSWER,
    "sandbox/fairlead/sandbox/apiserver/ownership/fieldsets.py": "a path of managedFields, from an object of at most 3 MiB",
    "sandbox/fairlead/sandbox/apiserver/ownership/managed.py": "an annotation, from an object of at most 3 MiB",
    "sandbox/fairlead/sandbox/apiserver/verbs/reading.py": "a continue token, in a request's head",
    "sandbox/fairlead/sandbox/apiserver/wire/bodies.py": "a body of at most 3 MiB, as kube-apiserver's; YAML is counted by yaml_text.check",
    "sandbox/fairlead/sandbox/apiserver/kinds/request.py": COPY,
    "sandbox/fairlead/sandbox/apiserver/rendering.py": "what the apiserver stores",
    "sandbox/fairlead/sandbox/apiserver/verbs/writing.py": COPY,
    "sandbox/fairlead/sandbox/controllers/namespace_controller.py": SERVED,
    "sandbox/fairlead/sandbox/informers.py": SERVED,
    "sandbox/fairlead/sandbox/install/pod_files.py": SERVED,
    "sandbox/fairlead/sandbox/install/program_host.py": OWN,
    "sandbox/fairlead/sandbox/install/programs.py": OWN,
    "sandbox/fairlead/sandbox/installation.py": COPY,
    "sandbox/fairlead/sandbox/kubelet/dra.py": "the kubelet's own checkpoint",
    "tools/release.py": REPOSITORY,
    "tools/release_archive.py": REPOSITORY,
    "tools/release_publish.py": "the answers of gh and docker to the maintainer who releases",
    "tools/render.py": REPOSITORY,
    "tools/tenant_files.py": REPOSITORY,
    "cli/fairlead/cli/tenant/create.py": COPY,
    "cli/fairlead/cli/printer.py": COPY,
    "cli/fairlead/cli/node.py": COPY,
}


def readers(source: str) -> set[str]:
    """Calls that read a format, as they are written."""
    return {
        ast.unparse(node.func)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in READERS
        and ast.unparse(node.func.value) in FORMATS
    } | {
        f"from {node.module} import {each.name}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module in FORMATS
        for each in node.names
        if each.name in READERS
    }


@pytest.mark.slow
def test_others_bytes_are_read_by_the_bounded_readers_only():
    found = {
        str(file.relative_to(ROOT)): sorted(readers(file.read_text()))
        for root in (*ROOTS, "tools", "monitoring")
        for file in (ROOT / root).rglob("*.py")
        if "lib/fairlead/bounded/" not in str(file)
    }
    elsewhere = {file: calls for file, calls in found.items() if calls}
    unknown = {file: calls for file, calls in elsewhere.items() if file not in UNREAD}
    assert not unknown, f"read with fairlead.bounded, or say above why not: {unknown}"
    assert UNREAD.keys() <= elsewhere.keys(), "what reads nothing any more needs no reason"


def test_a_planted_reader_is_found():
    assert readers("import yaml\nyaml.safe_load(x)") == {"yaml.safe_load"}
    assert readers("from json import loads") == {"from json import loads"}
    assert readers("import json\njson.dumps(x)") == set()


PRINTS = {"print", "typer.echo", "typer.secho", "click.echo", "click.secho", "Console", "rich.print", "sys.stdout.write", "sys.stderr.write",
          "sys.stdout.buffer.write", "sys.stdout.writelines", "sys.stderr.writelines"}  # fmt: skip
PRINTERS = {
    "cli/fairlead/cli/printer.py": "the printer",
    "controller/fairlead/controller/accounting/allocation_child.py": "its answer, through a pipe",
    "cli/fairlead/cli/snapshot.py": "a snapshot, as bytes, never to a terminal",
    "driver/fairlead/driver/common/launch.py": "a child's OSError to the driver's log, before any import",
    "driver/fairlead/driver/backend/simulated/mps_standin.py": "what a program of NVIDIA's would print, in tests",
}


def prints(source: str) -> set[str]:
    return {
        name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and (name := ast.unparse(node.func)) in PRINTS
    }


@pytest.mark.slow
def test_nothing_prints_past_the_printer():
    found = {
        str(file.relative_to(ROOT)): calls
        for root in ROOTS
        if root != "sandbox"
        for file in (ROOT / root).rglob("*.py")
        if "/generated/" not in str(file) and (calls := prints(file.read_text()))
    }
    assert found.keys() == PRINTERS.keys(), {file: calls for file, calls in found.items() if file not in PRINTERS}


def test_a_planted_print_is_found():
    assert prints("def f(): print(1)") == {"print"}
    assert prints("console = Console(width=3)") == {"Console"}
