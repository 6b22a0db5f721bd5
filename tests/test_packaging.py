"""One namespace package, made of source roots; extras that say what each program needs; a wheel that holds all of it."""

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
HATCH = PROJECT["tool"]["hatch"]["build"]
# A kubeconfig is read by the official client's loaders; in a cluster there is a ServiceAccount instead. uvloop is imported by the
# commands that start webhook and controller, psycopg-binary by psycopg.
OUTSIDE_A_CLUSTER = {"kubernetes"}
COMMANDS_ONLY = {"controller": {"jinja2"}}  # `fairlead report -o html`, which lies beside what the controller imports
STARTED_WITH = {
    "driver": set(),
    "webhook": {"uvloop"},
    "controller": {"uvloop", "psycopg-binary"},
    "ui": {"uvloop", "psycopg-binary"},
}
ROOTS = {
    "driver": ("lib", "driver"),
    "webhook": ("lib", "webhook"),
    "controller": ("lib", "engine", "history", "controller"),
    "ui": ("lib", "engine", "history", "controller", "webhook", "ui"),
}


def normal(name):
    return name.lower().replace("_", "-")


def imported(root):
    """Top-level modules that a source root imports from elsewhere."""
    for path in (ROOT / root).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module


def distributions(root):
    """The distributions that a source root needs. `google.*` is protobuf, the only one of that name that is used."""
    known = {**packages_distributions(), "google": ["protobuf"], "pydantic_core": ["pydantic"]}
    known["opentelemetry"] = ["opentelemetry-sdk"]  # several have parts of that name
    tops = {module.split(".")[0] for module in imported(root)} - sys.stdlib_module_names - {"fairlead"}
    return {normal(known[top][0]) for top in tops}


def test_fairlead_is_a_namespace_package_without_a_file_of_its_own():
    roots = HATCH["dev-mode-dirs"]
    assert roots
    assert [root for root in [*roots, "."] if (ROOT / root / "fairlead" / "__init__.py").exists()] == []
    for root in roots:
        for package in (ROOT / root / "fairlead").iterdir():
            if package.is_dir() and package.name != "__pycache__":
                assert (package / "__init__.py").exists(), package
                assert (package / "py.typed").exists(), package


def test_every_source_root_is_in_the_wheel_in_the_editable_install_and_checked():
    roots = HATCH["dev-mode-dirs"]
    assert {f"{root}/fairlead" for root in roots} == set(HATCH["targets"]["wheel"]["packages"])
    assert set(roots) <= set(PROJECT["tool"]["mypy"]["files"])
    assert {path.parent.name for path in ROOT.glob("*/fairlead")} == set(roots)


@pytest.mark.slow
@pytest.mark.parametrize("program", ["driver", "webhook", "controller", "ui"])
def test_an_extra_names_exactly_what_its_program_imports(program):
    needed = set.union(STARTED_WITH[program], {"typer", "rich"}, *(distributions(root) for root in ROOTS[program]))
    needed -= {name for name in needed if name.startswith("opentelemetry-")}  # of the extra `otel`
    extras = {normal(name) for name in PROJECT["project"]["optional-dependencies"][program]}
    assert extras == needed - OUTSIDE_A_CLUSTER - COMMANDS_ONLY.get(program, set())


def test_what_the_programs_need_is_among_the_dependencies():
    stated = {normal(line.split(">=")[0]) for line in PROJECT["project"]["dependencies"]}
    extras = {normal(name) for program in ROOTS for name in PROJECT["project"]["optional-dependencies"][program]}
    assert extras <= stated
    lock = (ROOT / "lock" / "image.txt").read_text().lower()
    assert [name for name in extras if f"\n{name}==" not in lock] == []


def test_only_an_image_with_traces_has_the_sdk_of_traces_and_tests_have_the_same_versions():
    def pinned(name):
        lines = (ROOT / "lock" / name).read_text().splitlines()
        return {line.split()[0] for line in lines if re.match(r"[\w-]+==", line)}

    otel = {line.split(">=")[0] for line in PROJECT["project"]["optional-dependencies"]["otel"]}
    traces = pinned("otel.txt")
    assert otel <= {line.split("==")[0] for line in traces}
    assert traces <= pinned("dev.txt") | pinned("runtime.txt")
    for lock in ("runtime.txt", "image.txt"):
        assert [line for line in pinned(lock) if line.startswith("opentelemetry")] == []
        versions = dict(line.split("==") for line in pinned(lock))
        assert {n: v for n, v in (line.split("==") for line in traces) if versions.get(n, v) != v} == {}


def test_the_wheel_holds_manifests_and_examples_only_beside_the_sandbox(tmp_path):
    sys.path.insert(0, str(ROOT))
    try:
        import hatch_build
    finally:
        sys.path.remove(str(ROOT))

    def files(root):
        metadata: Any = None
        hook = hatch_build.SandboxFiles(str(root), {}, metadata, metadata, str(tmp_path), "wheel")
        data: dict[str, dict[str, str]] = {"force_include": {}}
        hook.initialize("standard", data)
        return data["force_include"]

    every = files(ROOT)
    assert {name: f"fairlead/sandbox/_files/{name}" for name in every} == every
    tracked = subprocess.run(
        ["git", "ls-files", "manifests", "examples"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    wanted = {name for name in tracked.stdout.splitlines() if not (ROOT / name).is_symlink()}
    wanted |= {f"manifests/chart/files/crds/{path.name}" for path in (ROOT / "manifests" / "crds").iterdir()}  # a link
    assert wanted <= every.keys()
    assert files(tmp_path) == {}, "the image is built from a tree without a sandbox"


@pytest.mark.slow
def test_a_wheel_runs_the_command_and_finds_its_data(tmp_path):
    """Built as a release would be, without reaching out; laid into an empty folder that is read before this checkout."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path / "dist")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
        names = archive.namelist()
    assert [name for name in names if "/tests/" in name or name.startswith("tests/")] == []
    assert {
        f"fairlead/ui/pages/{name}"
        for name in ("style.css", "icon.svg", "templates/base.html", "vendor/htmx.min.js", "vendor/htmx.LICENSE")
    } <= set(names)
    assert "fairlead/history/cost/templates/report.html" in names
    probe = (
        "from fairlead.sandbox import files; from importlib import resources; import fairlead.cli.main as main; "
        "print(main.__file__, files.find('manifests/base'), files.find('examples/01-one-gpu'), "
        "sum(1 for entry in resources.files('fairlead.driver').rglob('hgx-h100.yaml')))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", probe],
        cwd=tmp_path,
        env={"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    )
    *paths, profiles = ran.stdout.split()
    assert [path for path in paths if not path.startswith(str(site))] == []
    assert profiles == "1"


WITHOUT_OPTIONAL = """
import importlib, sys
for name in ("psycopg", "psycopg_binary", "opentelemetry", "kubernetes", "jinja2", "uvloop"):
    sys.modules[name] = None  # as not installed: an import of it fails
importlib.import_module(sys.argv[1])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "module", ["fairlead.driver.app", "fairlead.webhook.app", "fairlead.controller.app", "fairlead.history.ledger"]
)
def test_a_program_starts_without_the_wheels_that_only_some_use(module):
    done = subprocess.run([sys.executable, "-c", WITHOUT_OPTIONAL, module], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_ledger_in_postgresql_says_what_it_needs_where_psycopg_is_not_installed():
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from fairlead.history.ledger.store.reader import open_reader\n"
        "open_reader('postgresql://me@db/ledger')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "PostgreSQL needs psycopg and libpq" in done.stderr
    assert "install psycopg[binary], or give a directory" in done.stderr
