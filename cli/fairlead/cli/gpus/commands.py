"""`repair` and `smoke`, for GPUs of a cluster. What they do is imported when they run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from fairlead.cli.options import Lines, Namespace, Shown


@dataclass(frozen=True, kw_only=True)
class Repair(Shown):
    """Repair a GPU: taint, drain, reset, verify, untaint. Exit code 0: it is well; 1: it stays tainted; 3: not finished."""

    node: Annotated[str | None, typer.Argument(help="The node.", show_default=False)] = None
    gpu: Annotated[str | None, typer.Argument(help="The GPU, such as gpu-3 or 3.", show_default=False)] = None
    drain: Annotated[
        Literal["wait", "evict"],
        typer.Option(help="Wait for the claims that have it, or evict their pods, as budgets allow."),
    ] = "wait"
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=1, help="Seconds to watch; the repair goes on afterwards.")
    ] = 3600.0
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be drained.")] = False
    cancel: Annotated[bool, typer.Option("--cancel", help="Take it back while it still drains.")] = False
    all_repairs: Annotated[bool, typer.Option("--list", help="Instead: list the repairs of all nodes.")] = False
    as_json: Lines = False

    def run(self) -> int:
        from fairlead.cli.gpus.repair import listing, repair

        if self.all_repairs:
            if self.node is not None or self.gpu is not None:
                raise typer.BadParameter("lists the repairs of all nodes: leave NODE and GPU out", param_hint="--list")
            output = "json" if self.as_json else self.output
            return listing(output=output, kubeconfig=self.kubeconfig, context=self.context)
        if self.node is None or self.gpu is None:
            raise typer.BadParameter("name both, as `fairlead repair NODE gpu-3`; or --list", param_hint="NODE GPU")
        gpu = gpu_name(self.gpu)
        if gpu is None:
            raise typer.BadParameter(
                f"{self.gpu!r} is no GPU: write gpu-3 or 3 (of a MIG device, the GPU that it is part of)",
                param_hint="GPU",
            )
        if self.dry_run and self.cancel:
            raise typer.BadParameter("goes without --dry-run", param_hint="--cancel")
        return repair(self, self.node, gpu)


@dataclass(frozen=True, kw_only=True)
class SmokeTest(Shown):
    """Test a node: allocate each free device, look at it from a container, clean up. Exit code 0: all well; 1: not; 3: none free."""

    node: Annotated[str, typer.Argument(help="The node.")]
    together: Annotated[
        bool,
        typer.Option(
            "--together", help="All free GPUs in one pod, with NCCL's bandwidth if nccl-tests is in the image."
        ),
    ] = False
    image: Annotated[
        str | None,
        typer.Option(help="Image with a shell; nvidia-smi comes with the devices. Default: a small one of CUDA's."),
    ] = None
    also: Annotated[
        str, typer.Option("--also", metavar="COMMAND", help="A command that has to succeed in the container, too.")
    ] = ""
    namespace: Namespace = None
    queue: Annotated[str | None, typer.Option(help="Queue of the pods. Default: as the namespace has it.")] = None
    timeout_s: Annotated[float, typer.Option("--timeout", min=1, help="Seconds for each device.")] = 300.0

    def run(self) -> int:
        from fairlead.cli.gpus.smoke import smoke

        return smoke(self)


def gpu_name(text: str) -> str | None:
    """`gpu-3` of `gpu-3` or `3`; None of anything else."""
    match = re.fullmatch(r"(?:gpu-)?(\d{1,3})", text)
    return None if match is None else f"gpu-{int(match[1])}"
