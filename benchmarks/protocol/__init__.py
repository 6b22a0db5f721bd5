"""What Fairlead's protocol costs on a sandbox: writes, refused writes, webhook calls, conversions for admission and CPU a pod;
churn; failover; renewals beside unlike pods.

    python -m benchmarks protocol --json figures.json
    python -m benchmarks protocol -- --parts=writes,gang8 --nodes=10 --pods=80

Webhook and controller are processes whose CPU is read from /proc; apiserver, claim controller and scheduler are the
sandbox's, so their writes are counted and their CPU is not. Counted from the POST of a pod to its binding, without kubelet,
Job controller and leases, for pods that a controller made (bare ones apart), with claim controllers at 20 requests a second
and unlimited. All sizes take half an hour or more. Bars: DESIGN 8 and issue 14.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
from collections.abc import Coroutine
from typing import Any, TypeVar

from benchmarks.protocol.admission import conversion_figures, conversions
from benchmarks.protocol.churn import Churn, churn_figures
from benchmarks.protocol.failover import Failover, failover_figures
from benchmarks.protocol.fill import GANG, Fill, Filled, Shape, count_figures, fill
from benchmarks.protocol.unlike import Unlike, unlike_figures

Figures = list[dict[str, Any]]
T = TypeVar("T")

PARTS = ("writes", "gang8", "bare", "admission", "cpu", "churn", "failover", "unlike")
BARS: dict[Shape, dict[str, float]] = {
    "single": {"writes-per-pod": 7.2, "refused-writes-per-pod": 0.02, "webhook-calls-per-pod": 1.1},
    "gang8": {"gang8-writes-per-pod": 7.5},
    "bare": {},
}
CPU_BARS_MS = {"100x800": 2.5, "500x4000": 3.0}
CHURN_BAR_MS = 6.0
FAILOVER_BARS_S = {1_000: 2.0, 10_000: 5.0}
LEASE_LATE_BAR_S = 1.0
MIG_FROM = 10_000
"""Nodes from which slices have MIG placements."""


def figures(*words: str) -> Figures:
    """The table, as DESIGN 9 has it: figure, value, unit, bar. `words` are options; see `--help`."""
    options = _parser().parse_args(words)
    found: Figures = []
    if "writes" in options.parts:
        found += _fills(options, "single")
    if "gang8" in options.parts:
        found += _fills(options, "gang8")
    if "bare" in options.parts:
        found += _fills(options, "bare")
    if "admission" in options.parts:
        found += conversion_figures(_run(conversions(GANG)), GANG)
    if "cpu" in options.parts:
        large = Fill(nodes=options.large_nodes, pods=options.large_pods, quiet_s=options.quiet_seconds)
        found += _cpu(large, _run(fill(large)))
    if "churn" in options.parts:
        churn = Churn(
            nodes=options.churn_nodes,
            seconds=options.churn_seconds,
            rate=options.churn_rate,
            quiet_s=options.quiet_seconds,
        )
        found += _run(churn_figures(churn, CHURN_BAR_MS))
    if "failover" in options.parts:
        for nodes in options.failover_nodes:
            bar_s = FAILOVER_BARS_S.get(nodes)
            wanted = Failover(
                nodes=nodes,
                lease_s=options.lease_seconds,
                mig=nodes >= MIG_FROM,
                bar_s=bar_s,
                quiet_s=options.quiet_seconds,
            )
            found += _run(failover_figures(wanted))
    if "unlike" in options.parts:
        found += _run(
            unlike_figures(
                Unlike(
                    nodes=options.unlike_nodes,
                    pods=options.unlike_pods,
                    lease_s=options.lease_seconds,
                    seconds=options.unlike_seconds,
                    bar_s=LEASE_LATE_BAR_S,
                )
            )
        )
    return found


def _fills(options: argparse.Namespace, shape: Shape) -> Figures:
    found: Figures = []
    for qps in options.qps:
        wanted = Fill(
            nodes=options.nodes, pods=options.pods, shape=shape, qps=qps or None, quiet_s=options.quiet_seconds
        )
        filled = _run(fill(wanted))
        prefix = "" if shape == "single" else f"{shape}-"
        suffix = f"@{qps:g}qps" if qps else ""
        found += count_figures(prefix, suffix, filled, BARS[shape])
        if shape == "single" and not qps:
            found += _cpu(wanted, filled)
    return found


def _cpu(wanted: Fill, filled: Filled) -> Figures:
    size = f"{wanted.nodes}x{wanted.pods}"
    spent = {"controller": filled.controller_s, "webhook": filled.webhook_s}
    return [
        {
            "figure": f"protocol/{program}-cpu-ms-per-pod/{size}",
            "value": round(seconds / filled.pods * 1000, 3),
            "unit": "ms/pod",
            "bar": CPU_BARS_MS.get(size) if program == "controller" else None,
            "pods": filled.pods,
            "bound_s": round(filled.bound_s, 1),
        }
        for program, seconds in spent.items()
    ]


def _run(work: Coroutine[Any, Any, T]) -> T:
    found = asyncio.run(work)
    gc.collect()  # a cluster is gone, and tens of millions of objects with it
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks protocol --", description=__doc__)
    parser.add_argument("--parts", type=_parts, default=PARTS, help=f"which of {','.join(PARTS)}")
    parser.add_argument("--nodes", type=int, default=100, help="of the fills that count writes")
    parser.add_argument("--pods", type=int, default=800, help="of one GPU each; a multiple of 8 for gang8")
    parser.add_argument("--qps", type=_numbers, default=(0.0, 20.0), help="limits of the claim controller; 0 is none")
    parser.add_argument("--quiet-seconds", type=float, default=2.0, help="without a write, until counting ends")
    parser.add_argument("--large-nodes", type=int, default=500, help="of the fill that measures CPU only")
    parser.add_argument("--large-pods", type=int, default=4_000)
    parser.add_argument("--churn-nodes", type=int, default=500, help="each runs one gang")
    parser.add_argument("--churn-seconds", type=float, default=60.0)
    parser.add_argument("--churn-rate", type=float, default=5.0, help="pods that come and go each second")
    parser.add_argument("--failover-nodes", type=lambda text: tuple(map(int, text.split(","))), default=(1_000, 10_000))
    parser.add_argument("--unlike-nodes", type=int, default=200, help="all of whose GPUs are taken")
    parser.add_argument("--unlike-pods", type=int, default=10_000, help="that wait, no two of them alike")
    parser.add_argument("--unlike-seconds", type=float, default=120.0, help="for which renewals are watched")
    parser.add_argument("--lease-seconds", type=float, default=15.0)
    return parser


def _parts(text: str) -> tuple[str, ...]:
    found = tuple(text.split(","))
    if unknown := sorted(set(found) - set(PARTS)):
        raise argparse.ArgumentTypeError(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    return found


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(map(float, text.split(",")))
