"""Pictures of every page for docs/ui.md, from a cluster with work on it: the demo's nodes, its examples, and `fairlead ui` beside them.

The demo's cases run first, so that there is a past; then they are applied again with pods that last, so that some gangs hold devices and
others wait for them; a GPU is broken, and one is drained while a gang goes on on it. Every page is opened in the distribution's Chromium at three widths, in light and in dark.

    python tools/screenshots.py               # what docs/ui.md shows, into docs/images/ui
    python tools/screenshots.py --all FOLDER  # every page at every width in both, to look at
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from PIL import Image
from playwright.async_api import Browser, async_playwright

from fairlead.cli.demo import cases
from fairlead.cli.demo.history import Observer
from fairlead.cli.demo.run import NODES
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.resources import DEPLOYMENTS, GANGS, JOBS, PODS, Raw, raw
from fairlead.sandbox import files
from fairlead.sandbox.cluster import Cluster, ClusterOptions
from fairlead.sandbox.install import manifests

ROOT: Final = Path(__file__).resolve().parents[1]
SHOWN: Final = ROOT / "docs" / "images" / "ui"
WIDTHS: Final = (1440, 1024, 390)
LEAST_HEIGHT, MOST_HEIGHT = 500, 1800  # a page goes on below: a gang's with more of its timeline, a node's is whole
COLOURS: Final = 128  # of a palette; text stays smooth, and a picture takes a third
WAVE_S, SCENE_S = 60.0, 90.0
ANSWER_MS: Final = 90_000.0  # two forecasts, by a process of their own
LONG: Final = "86400"
STILL_HELD: Final = 3  # exit status of `fairlead device drain`
STANDING: Final = ("01-one-gpu", "04-nvlink-island", "05-mig", "06-first-available", "07-reclaim/borrow.yaml")
LINING_UP: Final = ("02-indexed-job", "03-two-gangs")
WAITS: Final = "bert"


class Picture(NamedTuple):
    """A page at a width, in light or dark, and the file in docs/images/ui that it becomes."""

    page: str
    width: int
    dark: bool
    file: str


PAGES: Final = {
    "overview": "/",
    "map": "/map",
    "node": "/map?node=hgx-h100-a",
    "queues": "/queues",
    "gangs": "/gangs",
    "gang": f"/gangs/language/{WAITS}",
    "time": "/time?window=1h",
    "queue": "/queues/vision?window=1h",
    "cost": "/cost?window=1h&by=queue",
    "what-if": "/what-if",
}
DOCS: Final = (
    Picture("overview", 1440, dark=False, file="overview.png"),
    Picture("node", 1440, dark=False, file="cluster.png"),
    Picture("map", 390, dark=True, file="cluster-phone-dark.png"),
    Picture("queues", 1440, dark=False, file="queues.png"),
    Picture("gangs", 1440, dark=False, file="gangs.png"),
    Picture("gangs", 1024, dark=True, file="gangs-tablet-dark.png"),
    Picture("gang", 1440, dark=False, file="gang.png"),
    Picture("time", 1440, dark=False, file="time.png"),
    Picture("queue", 1440, dark=True, file="queue-dark.png"),
    Picture("cost", 1440, dark=False, file="cost.png"),
    Picture("what-if", 1440, dark=False, file="what-if.png"),
)


async def main(every: Path | None) -> None:
    with tempfile.TemporaryDirectory(prefix="fl-") as path:
        async with scene(Path(path)) as (config, ledger), served(config, ledger) as address:
            await pictures(address, every)


@contextlib.asynccontextmanager
async def scene(workdir: Path) -> AsyncIterator[tuple[Path, Path]]:
    """A cluster with a past, gangs that run, and gangs that wait; its kubeconfig and its ledger."""
    ledger = workdir / "ledger"
    options = ClusterOptions(workdir=workdir, nodes=NODES, flags={"controller": (f"--ledger={ledger}",)})
    async with Cluster(options) as cluster, cluster.client() as client:
        await cluster.apply(priced(manifests.load(files.find("examples/00-queues"))))
        async with Observer(client).running() as observer:
            await past(cluster, observer)
        await cleared(client)
        await fault(cluster)
        for folder in STANDING:
            await cluster.apply(lasting(manifests.load(files.find(f"examples/{folder}"))))
        await until("enough gangs to run", lambda: gangs_are(client, "Running", 5))
        await drain(cluster)
        for folder in LINING_UP:
            await cluster.apply(lasting(manifests.load(files.find(f"examples/{folder}"))))
        await until(f"a forecast for gang {WAITS}", lambda: forecast(client))
        yield cluster.kubeconfig(), ledger


async def past(cluster: Cluster, observer: Observer) -> None:
    """The demo's cases, one wave after the other."""
    for wave in cases.WAVES:
        for case in wave:
            for number, path in enumerate(case.paths):
                if number:
                    await observer.until(lambda case=case: case.running(observer.history), timeout_s=WAVE_S)  # type: ignore[misc]
                await cluster.apply(files.find(f"examples/{path}"))
        await observer.until(lambda wave=wave: all(case.finished(observer.history) for case in wave), timeout_s=WAVE_S)  # type: ignore[misc]


async def cleared(client: Client) -> None:
    """The cases' Deployments, Jobs and pods deleted, and gone, so that they can be applied again."""
    for resource in (DEPLOYMENTS, JOBS, raw(PODS)):
        for namespace in cases.NAMESPACES:
            for each in (await client.list(resource, namespace)).items:
                with contextlib.suppress(errors.NotFound):
                    await client.delete(resource, each["metadata"]["name"], namespace)

    async def gone() -> bool:
        left = [each for namespace in cases.NAMESPACES for each in (await client.list(raw(PODS), namespace)).items]
        return not left and not (await client.list(GANGS)).items

    await until("the first cases to be gone", gone)


async def fault(cluster: Cluster) -> None:
    """One GPU is lost."""
    plugins = cluster.nodes[NODES[-1].name].plugins_dir
    if await fairlead("fault", "gpu-1", "--lost", "--plugins-dir", str(plugins)):
        raise SystemExit("the GPU could not be broken")


async def drain(cluster: Cluster) -> None:
    """One GPU takes no new claims, and the gang that holds it goes on: the command does not wait for it."""
    words = ("device", "drain", f"{NODES[0].name}/gpu-3", "--timeout", "0", "--kubeconfig", str(cluster.kubeconfig()))
    if await fairlead(*words) not in {0, STILL_HELD}:
        raise SystemExit("the GPU could not be drained")


async def fairlead(*words: str) -> int:
    """The exit status of the command."""
    done = await asyncio.create_subprocess_exec(sys.executable, "-m", "fairlead", *words, stdout=subprocess.DEVNULL)
    return await done.wait()


def priced(objects: Iterable[Raw]) -> Iterator[Raw]:
    """The same objects; an hour of each flavor has a price."""
    for each in objects:
        if each["kind"] == "Flavor":
            each["spec"]["price"] = [{"perHour": "3.00", "currency": "EUR"}]
        yield each


def lasting(objects: Iterable[Raw]) -> Iterator[Raw]:
    """The same objects; their pods run for a day."""
    for each in objects:
        spec = each.get("spec", {})
        for container in (spec.get("template", {}).get("spec") or spec).get("containers", ()):
            container["command"] = ["sleep", LONG]
        yield each


async def gangs_are(client: Client, phase: str, number: int) -> bool:
    found = [each.get("status", {}).get("phase") for each in (await client.list(GANGS)).items]
    pods = [each.get("status", {}).get("phase") for each in (await client.list(raw(PODS))).items]
    return found.count(phase) + pods.count(phase) >= number


async def forecast(client: Client) -> bool:
    found = [each for each in (await client.list(GANGS)).items if each["metadata"]["name"] == WAITS]
    return bool(found) and "p50" in (found[0].get("status", {}).get("forecast") or {})


async def until(what: str, check: Callable[[], Awaitable[bool]]) -> None:
    deadline_s = time.monotonic() + SCENE_S
    while not await check():
        if time.monotonic() > deadline_s:
            raise SystemExit(f"waited {SCENE_S:.0f} s for {what}")
        await asyncio.sleep(0.2)


@contextlib.asynccontextmanager
async def served(config: Path, ledger: Path) -> AsyncIterator[str]:
    """`fairlead ui` as a user starts it; its address."""
    words = ("ui", "--port", "0", "--kubeconfig", str(config), "--ledger", str(ledger))
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "fairlead", *words, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip().rstrip("/")
    finally:
        process.send_signal(signal.SIGINT)
        await process.communicate()


async def pictures(address: str, every: Path | None) -> None:
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        raise SystemExit("chromium is not installed: apt-get install chromium")
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(executable_path=executable)
        if every is not None:
            for page in PAGES:
                for width in WIDTHS:
                    for dark in (False, True):
                        name = f"{page}-{width}-{'dark' if dark else 'light'}.png"
                        save(every / name, await taken(running, address, Picture(page, width, dark, name)))
        else:
            for picture in DOCS:
                save(SHOWN / picture.file, await taken(running, address, picture))
        await running.close()


async def taken(running: Browser, address: str, picture: Picture) -> bytes:
    """The page as a PNG, from its top, as high as it is or as a screen has room for."""
    scheme: Any = "dark" if picture.dark else "light"
    view: Any = {"width": picture.width, "height": LEAST_HEIGHT}
    context = await running.new_context(viewport=view, color_scheme=scheme, timezone_id="UTC", reduced_motion="reduce")
    try:
        page = await context.new_page()
        answer = await page.goto(address + PAGES[picture.page], wait_until="load")
        if answer is None or not answer.ok:
            raise SystemExit(f"{PAGES[picture.page]}: {answer and answer.status}")
        if picture.page == "what-if":
            await page.get_by_label("like").first.select_option(NODES[0].name)
            await page.get_by_role("button", name="Forecast").click()
            await page.locator("#answer").wait_for(timeout=ANSWER_MS)
        await page.evaluate("document.fonts.ready.then(() => true)")
        height = await page.evaluate("document.documentElement.scrollHeight")
        clip: Any = {"x": 0, "y": 0, "width": picture.width, "height": max(LEAST_HEIGHT, min(height, MOST_HEIGHT))}
        return await page.screenshot(full_page=True, clip=clip)
    finally:
        await context.close()


def save(path: Path, png: bytes) -> None:
    """With a palette, in which rare colours stay."""
    path.parent.mkdir(parents=True, exist_ok=True)
    few = (
        Image.open(io.BytesIO(png))
        .convert("RGB")
        .quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    )
    few.save(path, optimize=True)
    print(f"{path.stat().st_size:7} {path}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="every page, at every width, in light and in dark")
    asyncio.run(main(parser.parse_args().all))
