"""Runs the demo: a cluster in this process, the examples on it in waves, then the verdict.

The three programs are the real ones. What is checked comes from the API (`History`) and, at the end, from the nodes: no device in two
claims at any time, each case's promises, every claim released, every node clean. Before the verdict it says whose GPU-seconds went
where, as the controller's ledger has it. A signal ends it in order: programs, then the cluster, then its files.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from fairlead.cli import printer
from fairlead.cli.demo import cases, view
from fairlead.cli.demo.history import Observer
from fairlead.history.cost.bill import percentages
from fairlead.history.ledger.entries import BUCKETS, WHOLE_PPM
from fairlead.history.ledger.store.place import LedgerError
from fairlead.history.ledger.store.reader import open_reader
from fairlead.kube import resources
from fairlead.sandbox import files
from fairlead.sandbox.cluster import Cluster, ClusterOptions, NodeSpec
from fairlead.sandbox.install.programs import ProgramError
from fairlead.sandbox.release import NEWEST, Release

NODES = (
    NodeSpec("hgx-h100-a", "hgx-h100"),
    NodeSpec("hgx-h100-b", "hgx-h100"),
    NodeSpec("dgx-a100", "dgx-a100"),
    NodeSpec("l40s", "l40s"),
)
WAVE_TIMEOUT_S = 180.0
RELEASE_TIMEOUT_S = 60.0
"""For machines that other work keeps busy: an idle one takes a tenth."""
REFRESH_S = 0.2
PLAIN_WIDTH = 160
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_demo(*, keep: bool, plain: bool, workdir: Path | None, release: Release = NEWEST, start_s: float) -> int:
    """The exit code: 0 when every expectation held, 1 when one did not, 128 and its number when a signal ended it."""
    console = printer.console(highlight=False, width=PLAIN_WIDTH if plain else None)

    async def run() -> int:
        ended: list[int] = []
        task = asyncio.current_task()
        assert task is not None

        def end(number: int) -> None:
            ended.append(number)
            task.cancel()

        for number in ENDING:
            asyncio.get_running_loop().add_signal_handler(number, end, number)
        try:
            with contextlib.ExitStack() as stack:
                place = workdir or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fl-")))
                place.mkdir(parents=True, exist_ok=True)
                demo = Demo(console, plain=plain, keep=keep, workdir=place, release=release, start_s=start_s)
                return await demo.run()
        except asyncio.CancelledError:
            console.print("interrupted")
            return 128 + ended[0]

    return asyncio.run(run())


def _not_started(error: Exception) -> str:
    said = str(error).strip() or type(error).__name__
    return (
        f"the cluster did not start: {said}\n"
        "On a machine that is busy with something else, run it again when it is less so: each program has 30 s.\n"
        "`make demo DEMO_FLAGS='--workdir DIR'` keeps the logs in DIR/logs."
    )


class Demo:
    """One run: its console, its clock, its options, and what was shown so far."""

    def __init__(
        self,
        console: Console,
        *,
        plain: bool,
        keep: bool,
        workdir: Path,
        release: Release = NEWEST,
        start_s: float,
    ) -> None:
        self.console = console
        self.plain = plain
        self.keep = keep
        self.workdir = workdir
        self.release = release
        self.start_s = self._said_s = start_s
        self.shown: set[str] = set()
        self.injected: dict[tuple[str, str, str], tuple[str, ...]] = {}

    async def run(self) -> int:
        self._say(f"starting a cluster of {len(NODES)} nodes in this process: Kubernetes {self.release.name}")
        kept = (f"--record={self.workdir / 'recording'}", f"--ledger={self.workdir / 'ledger'}")
        async with contextlib.AsyncExitStack() as stack:
            options = ClusterOptions(
                workdir=self.workdir,
                nodes=NODES,
                flags={"controller": kept},
                release=self.release,
                started=self._started,
            )
            try:
                cluster = await stack.enter_async_context(Cluster(options))
            except (ProgramError, TimeoutError, OSError) as error:
                self.console.print(_not_started(error), markup=False)
                return 1
            async with (
                cluster.client() as client,
                Observer(client).running() as observer,
                self._pages(cluster) as address,
            ):
                failures = await self._play(cluster, observer)
                self.console.print(view.table(observer.history, self.injected))
                self.console.print(view.forecast_line(observer.history))
                if self.keep:
                    self._verdict(failures, observer)
                    await self._stay(cluster, address)
            self._say("ending the cluster")
        self.console.print(_accounted(self.workdir / "ledger"), markup=False)
        if not self.keep:
            self._verdict(failures, observer)
        return 1 if failures else 0

    @contextlib.asynccontextmanager
    async def _pages(self, cluster: Cluster) -> AsyncIterator[str]:
        """Serves the pages of the cluster on loopback where it is kept, from the beginning on; yields their address, "" without."""
        if not self.keep:
            yield ""
            return
        from fairlead.ui.reading.cluster import Cluster as Listed  # a second, for --keep alone
        from fairlead.ui.reading.ledger import Ledger
        from fairlead.ui.reading.live import LiveSource
        from fairlead.ui.serve.app import serve
        from fairlead.ui.serve.what_if import Computing, Where

        computing = Computing(Where(kubeconfig=cluster.kubeconfig()))
        async with cluster.client() as client:
            ledger = Ledger(str(self.workdir / "ledger"), flavors=lambda: Listed(client).list(resources.FLAVORS))
            async with serve(LiveSource(client), port=0, ledger=ledger, computing=computing) as address:
                self._say(f"its pages are at {address}: they show what happens as it happens")
                yield address

    async def _play(self, cluster: Cluster, observer: Observer) -> list[str]:
        failures: list[str] = []
        async with self._showing(cluster, observer):
            await cluster.apply(files.find("examples/00-queues"))
            for wave in cases.WAVES:
                for case in wave:
                    await self._apply(cluster, observer, case)
                failures += await self._outcome(wave, observer)
                if not all(case.finished(observer.history) for case in wave):
                    return failures  # what goes on holding devices would break the promises of the next wave
                for service in (case for case in wave if isinstance(case, cases.Service)):
                    self._say(
                        f"kubectl delete deployment {service.deployment} -n {service.namespace}   # it would not end by itself"
                    )
                    await cluster.admin.delete(resources.DEPLOYMENTS, service.deployment, service.namespace)
            history = observer.history
            await observer.until(
                lambda: not any(claim.allocated or claim.reserved for claim in history.claims.values()),
                timeout_s=RELEASE_TIMEOUT_S,
            )
            failures += await self._still_held(cluster, observer)
        failures += history.double_use
        return failures

    async def _apply(self, cluster: Cluster, observer: Observer, case: cases.Case) -> None:
        """Applies one file after the other, as a user does where the order matters."""
        for number, path in enumerate(case.paths):
            if number:
                await observer.until(lambda: case.running(observer.history), timeout_s=WAVE_TIMEOUT_S)
            self._say(f"kubectl apply -f examples/{path}   # {case.title}")
            await cluster.apply(files.find(f"examples/{path}"))

    async def _outcome(self, wave: tuple[cases.Case, ...], observer: Observer) -> list[str]:
        """Wait for a wave to end; returns the promises that were not kept."""
        history = observer.history
        await observer.until(lambda: all(case.finished(history) for case in wave), timeout_s=WAVE_TIMEOUT_S)
        failures = []
        for case in wave:
            if not case.finished(history):
                failures.append(
                    f"{case.folder}: not finished after {WAVE_TIMEOUT_S:.0f}s, so that later examples were not applied; with KEEP=1 the cluster stays, and `fairlead gangs -A` says why"
                )
                continue
            failures += [f"{case.folder}: {text}" for text in case.failures(history, observer.attributes)]
        return failures

    async def _still_held(self, cluster: Cluster, observer: Observer) -> list[str]:
        """What is still held, in the API or on a node, after up to RELEASE_TIMEOUT_S for the nodes to finish."""

        def held() -> Iterator[str]:
            for claim in observer.history.claims.values():
                if claim.allocated or claim.reserved:
                    yield f"claim {claim.namespace}/{claim.name}: still allocated after its pods ended"
            for name, node in sorted(cluster.nodes.items()):
                yield from (f"node {name}: {left}" for left in node.leftovers())

        deadline_s = time.monotonic() + RELEASE_TIMEOUT_S
        while (left := list(held())) and time.monotonic() < deadline_s:  # noqa: ASYNC110 - nodes have no event for it
            await asyncio.sleep(REFRESH_S)
        return left

    @contextlib.asynccontextmanager
    async def _showing(self, cluster: Cluster, observer: Observer) -> AsyncIterator[None]:
        """Refresh the view, and record the device nodes of containers, for the length of the block."""
        with contextlib.ExitStack() as stack:
            live = None
            if not self.plain:
                live = stack.enter_context(Live(console=self.console, auto_refresh=False, transient=True))
            task = asyncio.create_task(self._refresh(cluster, observer, live))
            try:
                yield
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                self._look(cluster, observer, live)

    async def _refresh(self, cluster: Cluster, observer: Observer, live: Live | None) -> None:
        while True:
            self._look(cluster, observer, live)
            await asyncio.sleep(REFRESH_S)

    def _look(self, cluster: Cluster, observer: Observer, live: Live | None) -> None:
        for node in cluster.nodes.values():
            for key, container in node.kubelet.containers.items():
                self.injected[key] = tuple(container.device_nodes)
        if live is not None:
            width = self.console.width
            drawn = view.draw(
                observer.history, observer.slices(), now_s=observer.now_s(), title="Fairlead", width=width
            )
            live.update(drawn, refresh=True)
        else:
            for line in view.lines(observer.history, self.shown, start_s=self.start_s, width=PLAIN_WIDTH):
                self.console.print(line, markup=False)

    def _verdict(self, failures: list[str], observer: Observer) -> None:
        took_s = time.monotonic() - self.start_s
        if failures:
            for failure in failures:
                self.console.print(Text.assemble(("failed", "bold red"), f" {failure}"))
            self.console.print(f"{len(failures)} expectations failed after {took_s:.0f}s")
            return
        claims = len(observer.history.claims)
        self.console.print(
            f"[bold green]ok[/bold green] {sum(map(len, cases.WAVES))} cases as promised; no device was ever in two of {claims} claims; "
            f"all claims released, all hardware free; {took_s:.0f}s"
        )

    async def _stay(self, cluster: Cluster, address: str) -> None:
        self.console.print(
            f"\nThe cluster stays until Ctrl-C, and its pages:\n\n  {address}\n"
            f"\nIn another shell, with any kubectl (`make test` puts one beside fairlead):\n\n"
            f"  export KUBECONFIG={cluster.kubeconfig()} PATH={Path(sys.executable).parent}:$PATH\n"
            "  fairlead top\n"
            "\nThe examples have run and stay as they ended. To see one again, for ten minutes instead of seconds:\n\n"
            "  kubectl delete -f examples/03-two-gangs\n"
            '  sed \'s/"5"/"600"/\' examples/03-two-gangs/jobs.yaml | kubectl apply -f -\n'
            "  fairlead explain bert -n language\n"
            f"\nTo break a GPU there, and see its pods evicted (--mend makes it well again):\n\n"
            f"  fairlead fault gpu-0 --lost --plugins-dir {cluster.nodes[NODES[0].name].plugins_dir}\n"
            f"\nTo see where the GPUs' time went:\n\n  fairlead cost --window 1h --ledger {self.workdir / 'ledger'}\n",
            markup=False,
            soft_wrap=True,  # commands are to be copied
        )
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    def _say(self, text: str) -> None:
        self._said_s = time.monotonic()
        self.console.print(f"{self._said_s - self.start_s:5.1f}s {text}", markup=False)

    def _started(self, part: str) -> None:
        self._say(f"{part} (took {time.monotonic() - self._said_s:.1f}s)")


def _accounted(ledger: Path) -> str:
    """The summary of the ledger. To be called when the controller has ended: it writes the last seconds then."""
    try:
        with contextlib.closing(open_reader(str(ledger))) as reader:
            known = reader.known()
            sums = [] if known is None else reader.sums(*known, ("queue",))
    except LedgerError as error:
        return f"the ledger cannot be read: {error}"
    weighed = Counter[tuple[str, str]]()
    for each in sums:
        weighed[each.bucket, each.keys[0]] += each.time_us * each.measure.share_ppm
    total = sum(weighed.values())
    if not total:
        return "the ledger holds nothing"
    ordered = sorted(weighed, key=lambda key: (BUCKETS.index(key[0]), -weighed[key], key[1]))
    percent = percentages({key: weighed[key] for key in ordered})
    parts = (f"{bucket}{f' by {queue}' if queue else ''} {percent[bucket, queue]} %" for bucket, queue in ordered)
    return f"GPU time: {total / WHOLE_PPM / 1e6:,.0f} s, of it {', '.join(parts)}: {sum(percent.values())} %"
