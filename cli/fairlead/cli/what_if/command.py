"""`fairlead what-if`: read, change, compare, print. Exit status: 0 printed, 1 the cluster or the change cannot be read."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairlead.cli.limits import TooLongError, cpu_at_most
from fairlead.cli.printer import say
from fairlead.cli.views import printing
from fairlead.cli.what_if.commands import WhatIf
from fairlead.cli.what_if.report import show
from fairlead.engine.forecast.what_if import ChangeError
from fairlead.history.facts import snapshot_file
from fairlead.ui.reading.cluster import Cluster, NotReadError
from fairlead.ui.what_if import world as worlds
from fairlead.ui.what_if.answer import answer
from fairlead.ui.what_if.question import Question, horizon_s
from fairlead.ui.what_if.world import World
from fairlead.ui.what_if.written import as_json

COMPARE_S = 300.0  # of CPU
LARGE = 300  # gangs from which on there may be a first version of the table


def run(asked: WhatIf) -> int:
    if asked.snapshot is not None and (asked.kubeconfig is not None or asked.context):
        say(
            "--snapshot: what-if asks a file or a cluster, and --kubeconfig or --context names one: leave out either",
            file=sys.stderr,
        )
        return 1
    try:
        question = Question(
            add_nodes=asked.add_nodes,
            remove=asked.remove,
            queue=asked.queue,
            submit=_documents(asked.files),
            horizon_s=horizon_s(asked.horizon),
            samples=asked.samples,
            drivers=asked.managed_drivers,
            own_profiles=True,
        )
    except OSError as error:
        say(f"-f {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    except (ChangeError, ValueError) as error:
        say(error, file=sys.stderr)
        return 1
    gc.disable()  # of what is read nothing becomes free: each collection would look at all of it in vain, a fifth of the time
    try:
        return _read_and_compare(asked, question)
    finally:
        gc.enable()


def _read_and_compare(asked: WhatIf, question: Question) -> int:
    code, world = _read(asked, question)
    if world is None:
        return code
    try:
        with cpu_at_most(COMPARE_S):
            return _compare(asked, question, world)
    except ChangeError as error:
        say(error, file=sys.stderr)
    except TooLongError:
        say(
            f"it took more than {COMPARE_S:g} s of CPU time and was ended: submit less, or ask for fewer samples or a shorter horizon",
            file=sys.stderr,
        )
    return 1


def _compare(asked: WhatIf, question: Question, world: World) -> int:
    """Raises ChangeError."""
    large = asked.output == "table" and len(world.snapshot.gangs) + len(world.snapshot.running) > LARGE
    if large and not world.data:
        world.data = snapshot_file.dump(world.snapshot, world.now)
    comparison = answer(question, world, quick=large)
    if large:
        show(comparison)
        gc.freeze()
        gc.enable()  # the simulations that follow may be long
        say("\nThat was a first look. With every gang decided on:\n", flush=True)
        world.snapshot = snapshot_file.load(world.data).snapshot  # the comparison changed it
        comparison = answer(question, world)
    if asked.output == "table":
        show(comparison)
    else:
        printing.structured(as_json(comparison, world.now), asked.output)
    return 0


def _documents(files: Sequence[Path]) -> list[dict[str, Any]]:
    if not files:
        return []
    from fairlead.cli.checks.manifests import documents_of  # with the webhook: half a second

    return list(documents_of(files))


def _read(asked: WhatIf, question: Question) -> tuple[int, World | None]:
    """Exit status, and what was read; messages go to standard error."""
    if asked.snapshot is not None:
        try:
            return 0, worlds.of_file(asked.snapshot)
        except NotReadError as error:
            say(error, file=sys.stderr)
            return 1, None

    from fairlead.cli.views import reading

    async def look(cluster: Cluster) -> World:
        return await worlds.of_cluster(cluster, question)

    return reading.run(look, kubeconfig=asked.kubeconfig, context=asked.context)
