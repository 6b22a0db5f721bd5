"""What every suite shares: where the recorded answers lie, which cluster e2e runs on, how properties are tried, what a run that is cut off says."""

import argparse
import contextlib
import faulthandler
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import HealthCheck, settings

from fairlead.api import names
from fairlead.api.drivers import NVIDIA
from fairlead.kube.garbage import frozen_heap
from fairlead.sandbox.install import manifests
from fairlead.sandbox.ports import Ports
from tests.support import temporary
from tests.support.engine.examples import examples
from tests.support.kubernetes import VARIABLE, of_this_run

ROOT = Path(__file__).resolve().parent
GO_WITH_THE_PROCESS = ("fl-earlier-",)  # tests.support.earlier_version

# A loaded machine is no failure; a failure prints how to replay it. Where CI is set the same examples are tried each time: what fresh
# ones find is no verdict on the change that happened to meet it.
COMMON = settings(
    deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow], max_examples=examples(100)
)
settings.register_profile("fairlead", COMMON)
settings.register_profile("fairlead-ci", COMMON, derandomize=True, database=None)
settings.load_profile("fairlead-ci" if os.environ.get("CI") else "fairlead")


def _requests(text: str) -> dict[str, str]:
    try:
        return manifests.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--vectors",
        type=Path,
        default=ROOT.parent / "shared" / "vectors",
        help="directory with recorded answers of real Kubernetes (tests/conformance)",
    )
    parser.addoption(
        "--kubeconfig",
        type=Path,
        default=None,
        help="run e2e on this cluster, where the three programs already run; default: a sandbox of its own",
    )
    parser.addoption(
        "--driver",
        choices=[names.DRIVER, NVIDIA],
        default=names.DRIVER,
        help="whose GPUs e2e runs on; gpu.nvidia.com: Fairlead without its own driver, beside NVIDIA's, with manifests in its names",
    )
    parser.addoption(
        "--requests",
        type=_requests,
        default=None,
        help="CPU and memory that each container of the examples requests in e2e: none, or as in cpu=10m,memory=16Mi; "
        "default: as the examples say (up to 16 CPUs and 64Gi)",
    )


_TEMPORARY = pytest.StashKey[Path]()
_STDERR = pytest.StashKey[int]()
_HEAP = pytest.StashKey[contextlib.ExitStack]()


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # its workers and all that tests start inherit the variables
        root = temporary.root()
        # pytest keeps its own folders, of three runs: they stay where they are.
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", root)
        config.stash[_TEMPORARY] = Path(tempfile.mkdtemp(prefix="fl-", dir=root))
        config.stash[_TEMPORARY].chmod(0o755)  # a database server is another user
        os.environ["TMPDIR"] = tempfile.tempdir = str(config.stash[_TEMPORARY])
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a run in the background: what tests start would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[_STDERR] = os.dup(sys.stderr.fileno())  # tests' own output is captured
    config.stash[_HEAP] = contextlib.ExitStack()
    try:
        of_this_run()
    except ValueError as error:
        raise pytest.UsageError(f"{VARIABLE}={error}") from None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """No garbage is collected meanwhile: a quarter of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What `make test` leaves to `make slow`: the other examples of a property, cases of a matrix, and controllers on clusters of their own."""
    cases: Counter[str] = Counter()
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("property")
        if "bench" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("core"):
            item.add_marker("slow")
        if one_in := item.get_closest_marker("one_in"):
            function = item.nodeid.partition("[")[0]
            if cases[function] % one_in.args[0]:
                item.add_marker("slow")
            cases[function] += 1


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fifteen thousand tests are a million objects, and each collection of garbage would traverse them: a fifth of the time."""
    if len(session.items) > 100:  # a test of a large cluster, alone, leaves it to the cluster what is frozen, and when
        session.config.stash[_HEAP].enter_context(frozen_heap((10_000, 20, 20)))


@pytest.fixture
def free_port() -> Iterator[Callable[[], int]]:
    """Ports of 127.0.0.1 that are the test's own until it ends."""
    with contextlib.closing(Ports()) as ports:
        yield ports.reserve


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_HEAP].close()
    gc.freeze()  # pytest ends with five collections of all there is, 5 s in each process
    if _TEMPORARY in config.stash:
        shutil.rmtree(config.stash[_TEMPORARY], ignore_errors=True)


@pytest.hookimpl(trylast=True)  # when xdist has ended its workers
def pytest_sessionfinish(session: pytest.Session) -> None:
    """What tests leave in the temp folder is named. It goes with the run's folder, so that a killed program's is no failure."""
    if _TEMPORARY not in session.config.stash:
        return
    found = sorted(each.name for each in session.config.stash[_TEMPORARY].iterdir())
    if left := [name for name in found if not name.startswith(GO_WITH_THE_PROCESS)]:
        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        terminal.ensure_newline()
        terminal.write_line(f"{len(left)} files or folders were left in the temp folder: {' '.join(left[:20])}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """A teardown that hangs ends its process with a traceback, as a test does (`faulthandler_timeout`).

    pytest stops its own clock when a test fails, so that what a failed test leaves running could hang the run forever.
    """
    limit_s = float(item.config.getini("faulthandler_timeout") or 0)
    if not (limit_s and item.config.getini("faulthandler_exit_on_timeout")):
        return (yield)
    faulthandler.dump_traceback_later(limit_s, exit=True, file=item.config.stash[_STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


class Told:
    """A failure is printed when it happens, and on SIGTERM which tests did not end: a run that is cut off prints no summary."""

    def __init__(self, terminal: pytest.TerminalReporter, temporary: Path) -> None:
        self._terminal = terminal
        self._temporary = temporary
        self._running: dict[str, None] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running[nodeid] = None

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running.pop(nodeid, None)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self._print(f"FAILED {report.nodeid} ({report.when}): {crash.message[:500] if crash else ''}")

    def cut_off(self, number: int, _: FrameType | None) -> None:
        self._print(f"cut off while these ran: {', '.join(self._running) or 'none'}")
        shutil.rmtree(self._temporary, ignore_errors=True)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _print(self, text: str) -> None:
        self._terminal.ensure_newline()
        self._terminal.write_line(text)
        self._terminal.flush()


def pytest_sessionstart(session: pytest.Session) -> None:
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(session.config, "workerinput"):
        told = Told(terminal, session.config.stash[_TEMPORARY])
        session.config.pluginmanager.register(told)
        signal.signal(signal.SIGTERM, told.cut_off)
