"""`hold`, `resume`, `device`, `top`. What they do is imported when they run."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import typer

from fairlead.cli.gpus.commands import gpu_name
from fairlead.cli.options import Lines, Namespace, OfCluster, Shown
from fairlead.kube.flags import Form


def _one_line(text: str) -> str:
    from fairlead.api.hold import REASON_MAX  # with the models of our kinds

    text = text.strip()
    if len(text) > REASON_MAX:
        raise ValueError(f"has {len(text)} characters: write at most {REASON_MAX}")
    if not text.isprintable():
        raise ValueError("has a line break or control character: write one line of plain text")
    return text


def _node_and_gpu(text: str) -> tuple[str, str]:
    node, _, gpu = text.rpartition("/")
    name = gpu_name(gpu)
    if not node or name is None:
        raise ValueError(
            f"{text!r} is no GPU of a node: write hgx-h100-a/gpu-3 (of a MIG device, the GPU that it is part of)"
        )
    return node, name


LINE = Form(_one_line, str)
Gpu = Annotated[
    tuple[str, str],
    Form(_node_and_gpu, "/".join),
    typer.Argument(metavar="NODE/GPU", help="Such as hgx-h100-a/gpu-3, or hgx-h100-a/3."),
]
Evict = Annotated[
    bool, typer.Option("--evict", help="Evict what runs, too: with its checkpoint-grace, as budgets allow.")
]
Reason = Annotated[str, LINE, typer.Option(metavar="TEXT", help="Why, in one line; it stands wherever the hold shows.")]


@dataclass(frozen=True, kw_only=True)
class Top(OfCluster):
    """Watch queues, nodes' GPUs and gangs in the terminal; Ctrl-C ends it. Each GPU is one letter, the first line says which."""

    sort: Annotated[
        Literal["line", "name", "age", "size", "queue"],
        typer.Option(help="Order of gangs; line: waiting ones first, in the order of their queues."),
    ] = "line"
    sort_queues: Annotated[
        Literal["tree", "used", "over", "waiting"],
        typer.Option("--sort-queues", help="Order of queues; over: most above the fair share first."),
    ] = "tree"
    sort_nodes: Annotated[
        Literal["name", "free", "held", "broken"], typer.Option("--sort-nodes", help="Order of nodes.")
    ] = "name"
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Gangs of this one only. Default: of all that you may see.")
    ] = None
    once: Annotated[bool, typer.Option("--once", help="Print one picture, in full; so it is into a pipe, too.")] = False
    interval_s: Annotated[
        float, typer.Option("--interval", min=0.5, max=3600, help="Seconds between two pictures.")
    ] = 2.0

    def run(self) -> int:
        from fairlead.cli.operate.top import top

        return top(self)


@dataclass(frozen=True, kw_only=True)
class Holding(OfCluster):
    """One that puts a gang or a queue on hold, or ends that."""

    output: Annotated[
        Literal["text", "json"], typer.Option("--output", "-o", help="json: one object for programs.")
    ] = "text"


@dataclass(frozen=True, kw_only=True)
class HoldGang(Holding):
    """Put a gang on hold: it keeps its place and age, and is not admitted. Again: changes nothing but to add --evict."""

    name: Annotated[str, typer.Argument(help="The gang; a pod without a gang is one of its own name.")]
    namespace: Namespace = None
    reason: Reason = ""
    evict: Evict = False

    def run(self) -> int:
        from fairlead.cli.operate.hold import gang

        return gang(self, lambda it: it.hold(reason=self.reason, evict=self.evict, now=time.time()))


@dataclass(frozen=True, kw_only=True)
class HoldQueue(Holding):
    """Put a queue on hold: no gang of it, or of the queues below it, is admitted."""

    name: Annotated[str, typer.Argument(help="The queue; those below it are on hold with it.")]
    reason: Reason = ""
    evict: Evict = False

    def run(self) -> int:
        from fairlead.cli.operate.hold import queue

        return queue(self, lambda it: it.hold(reason=self.reason, evict=self.evict, now=time.time()))


@dataclass(frozen=True, kw_only=True)
class ResumeGang(Holding):
    """End the hold of a gang. One that an operator wrote takes the right that it was written with."""

    name: Annotated[str, typer.Argument(help="The gang.")]
    namespace: Namespace = None

    def run(self) -> int:
        from fairlead.cli.operate.hold import gang

        return gang(self, lambda it: it.resume())


@dataclass(frozen=True, kw_only=True)
class ResumeQueue(Holding):
    """End the hold of a queue; holds of queues above it, and of its gangs, stay."""

    name: Annotated[str, typer.Argument(help="The queue.")]

    def run(self) -> int:
        from fairlead.cli.operate.hold import queue

        return queue(self, lambda it: it.resume())


@dataclass(frozen=True, kw_only=True)
class OfGpu(OfCluster):
    """One for a GPU of a node."""

    gpu: Gpu
    as_json: Lines = False


@dataclass(frozen=True, kw_only=True)
class Drain(OfGpu):
    """Give a GPU to no new claim, and wait until nothing has it. Exit code 0: it is empty; 1: failed; 3: still held."""

    mode: Annotated[
        Literal["wait", "evict"],
        typer.Option("--drain", help="Wait for the claims that have it, or evict their pods, as budgets allow."),
    ] = "wait"
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0, help="Seconds to wait; it stays drained afterwards.")
    ] = 3600.0
    reason: Annotated[str, LINE, typer.Option(metavar="TEXT", help="Why, in one line, for `device list`.")] = ""
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which gangs hold it.")] = False

    def run(self) -> int:
        from fairlead.cli.operate.device import run

        if self.dry_run:
            return run(self, lambda it: it.look())
        return run(self, lambda it: it.drain(self.mode, self.timeout_s, reason=self.reason))


@dataclass(frozen=True, kw_only=True)
class Undrain(OfGpu):
    """Give a drained GPU to claims again."""

    def run(self) -> int:
        from fairlead.cli.operate.device import run

        return run(self, lambda it: it.undrain())


@dataclass(frozen=True, kw_only=True)
class Resume(Undrain):
    """Give a drained GPU to claims again; the same as undrain, for those who look for `resume`."""

    HIDDEN: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Drained(Shown):
    """List the GPUs that are drained."""

    def run(self) -> int:
        from fairlead.cli.operate.device import listing

        return listing(output=self.output, kubeconfig=self.kubeconfig, context=self.context)
