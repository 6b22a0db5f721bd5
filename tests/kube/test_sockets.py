"""A program that ends, however it ends, leaves no socket of the client unclosed: Python would warn of each.

All cases run one after another in a process with ResourceWarning as an error, beside an apiserver over TLS; on asyncio's loop and on
uvloop, which webhook and controller use. What is left unclosed is complained of after the name of its case.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from fairlead.sandbox.apiserver.server import ApiServer

START = """
import asyncio, contextlib, gc, sys, uvloop
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.informer import Informer
from fairlead.kube.resources import CONFIG_MAPS, NODES, PODS, NAMESPACES

KUBECONFIG = sys.argv[1]

async def following(client, *resources):
    informers = [Informer(client, resource) for resource in resources]
    tasks = [asyncio.create_task(informer.run()) for informer in informers]
    for informer in informers:
        await informer.synced.wait()
    await asyncio.sleep(0.1)
    return tasks
"""

ENDINGS = {
    "after one request": """
async def main():
    async with Client.connect(KUBECONFIG) as client:
        await client.list(NODES)
""",
    "after many at once": """
async def main():
    async with Client.connect(KUBECONFIG) as client:
        await asyncio.gather(*(client.list(NODES) for _ in range(20)))
""",
    "after refused requests": """
async def main():
    async with Client.connect(KUBECONFIG) as client:
        for _ in range(3):
            with contextlib.suppress(errors.NotFound):
                await client.get(NODES, "none")
""",
    "while informers watch": """
async def main():
    async with Client.connect(KUBECONFIG) as client:
        tasks = await following(client, NODES, PODS, CONFIG_MAPS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
""",
    "with informers cancelled by the end of the loop": """
async def main():
    async with Client.connect(KUBECONFIG) as client:
        global tasks
        tasks = await following(client, NODES, PODS, CONFIG_MAPS)
""",
    "by an error in the midst": """
async def main():
    try:
        async with Client.connect(KUBECONFIG) as client, asyncio.TaskGroup() as group:
            for resource in (NODES, PODS):
                group.create_task(Informer(client, resource).run())
            await asyncio.sleep(0.3)
            raise RuntimeError("the program fails")
    except* RuntimeError:
        pass
""",
    "with a watch that is left after its first event": """
async def main():
    async with Client.connect(KUBECONFIG) as client:
        listing = await client.list(NAMESPACES)
        await client.create(NAMESPACES, {"metadata": {"name": "later"}})
        async for event in client.watch(NAMESPACES, resource_version=listing.resource_version):
            break
""",
    "by a signal": """
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # where the tests run in the background it is ignored
async def main():
    async with Client.connect(KUBECONFIG) as client:
        await following(client, NODES, PODS)
        asyncio.get_running_loop().call_later(0.1, os.kill, os.getpid(), signal.SIGINT)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
""",
}

END = """
print(ENDING, file=sys.stderr)
try:
    with asyncio.Runner(loop_factory=LOOP) as runner:
        runner.run(main())
except KeyboardInterrupt:
    pass
gc.collect()
"""


@pytest.fixture
async def apiserver(tmp_path: Path) -> AsyncIterator[ApiServer]:
    async with ApiServer(workdir=tmp_path, random=Random(1)) as server:
        yield server


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["None", "uvloop.new_event_loop"])
async def test_no_socket_is_left_unclosed(apiserver: ApiServer, tmp_path: Path, loop: str) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(apiserver.kubeconfig())
    cases = "".join(
        code + END.replace("ENDING", repr(ending)).replace("LOOP", loop) for ending, code in ENDINGS.items()
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error::ResourceWarning", "-c", START + cases, str(kubeconfig),
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(60):
        _, complaints = await process.communicate()
    assert (process.returncode, complaints.decode().splitlines()) == (0, list(ENDINGS))
