"""Fairlead / Gang: what does a gang do with its GPUs, and does it hang?"""

from __future__ import annotations

from typing import Final

from monitoring.dashboards.common import BUSY, GANG, NAMESPACE, QUEUE, RATIO
from monitoring.grafana import BLUE, RED, YELLOW, Dashboard, Query, graph, stat, table

_OF: Final = 'namespace=~"$namespace", queue=~"$queue", gang=~"$gang"'
_HELD: Final = f"fairlead:device_holder:info{{{_OF}}}"
_BY: Final = "{{gang}} {{node}} {{device}}"


def _of_device(expression: str) -> str:
    """A reading of the GPUs that the chosen gangs hold; the reading is one series for each `uuid`."""
    return f"{_HELD} * on (uuid) group_left () {expression}"


DASHBOARD: Final = Dashboard(
    uid="fairlead-gang",
    title="Fairlead / Gang",
    question="What does a gang do with its GPUs: does it compute, exchange data, hang, leak memory, or run too hot?",
    variables=(QUEUE, NAMESPACE, GANG),
    span="now-1h",
    rows=(
        (
            "Now",
            (
                stat("Devices", "How many devices do the chosen gangs hold?", Query(f"count({_HELD})"), base=BLUE),
                stat(
                    "Utilisation",
                    "How busy are their GPUs on average?",
                    Query(f"avg(fairlead:device_utilization:ratio{{{_OF}}})"),
                    **BUSY,
                ),
                stat(
                    "Least busy GPU",
                    "How busy is the GPU that is least busy? One at 0 beside others at 100 % is a member that waits or has ended.",
                    Query(f"min(fairlead:device_utilization:ratio{{{_OF}}})"),
                    **BUSY,
                ),
                stat(
                    "NVLink traffic",
                    "How much do their GPUs exchange over NVLink? Nothing beside full utilisation is typical of a hung collective.",
                    Query(f"sum(fairlead:device_nvlink_bytes:rate5m{{{_OF}}})"),
                    unit="Bps",
                    base=BLUE,
                ),
                stat(
                    "Fullest memory",
                    "How full is the memory that is fullest?",
                    Query(f"max(fairlead:device_memory:ratio{{{_OF}}})"),
                    unit="percentunit",
                    steps=((0.9, YELLOW), (0.95, RED)),
                ),
                stat(
                    "Hottest",
                    "How hot is the hottest of their GPUs?",
                    Query(f"max({_of_device('max by (uuid) (fairlead_driver_gpu_temperature_celsius)')})"),
                    unit="celsius",
                    steps=((80, YELLOW), (85, RED)),
                ),
            ),
        ),
        (
            "Computes or hangs",
            (
                graph(
                    "Utilisation by GPU",
                    "Which GPU computes, and since when does one not?",
                    Query(f"fairlead:device_utilization:ratio{{{_OF}}}", _BY),
                    **RATIO,
                    width=12,
                ),
                graph(
                    "NVLink by GPU",
                    "Does each GPU exchange data with the others, and since when does it not?",
                    Query(f"fairlead:device_nvlink_bytes:rate5m{{{_OF}}}", _BY),
                    unit="Bps",
                    least=0,
                    width=12,
                ),
                graph(
                    "Multiprocessors active",
                    "Which part of the time are the multiprocessors of each GPU, or MIG device, active? Low beside full utilisation "
                    "is small kernels, or waiting in a kernel.",
                    Query(_of_device("max by (uuid) (fairlead_driver_gpu_sm_active_ratio)"), _BY),
                    **RATIO,
                ),
                graph(
                    "Tensor cores active",
                    "Are the tensor cores used?",
                    Query(_of_device("max by (uuid) (fairlead_driver_gpu_tensor_active_ratio)"), _BY),
                    **RATIO,
                ),
                graph(
                    "Memory bandwidth active",
                    "Is the GPU bound by its memory?",
                    Query(_of_device("max by (uuid) (fairlead_driver_gpu_dram_active_ratio)"), _BY),
                    **RATIO,
                ),
            ),
        ),
        (
            "Memory, power, heat",
            (
                graph(
                    "Memory by GPU",
                    "How full is the memory of each GPU, and does it grow without end?",
                    Query(f"fairlead:device_memory:ratio{{{_OF}}}", _BY),
                    **RATIO,
                    steps=((0.95, RED),),
                ),
                graph(
                    "Power by GPU, of its limit",
                    "How near to its power limit is each GPU?",
                    Query(
                        _of_device(
                            "(max by (uuid) (fairlead_driver_gpu_power_watts) "
                            "/ max by (uuid) (fairlead_driver_gpu_power_limit_watts))"
                        ),
                        _BY,
                    ),
                    unit="percentunit",
                    least=0,
                ),
                graph(
                    "Temperature by GPU",
                    "Is a GPU of the gang hotter than the others, or near the 89 °C at which an H100 slows down?",
                    Query(_of_device("max by (uuid) (fairlead_driver_gpu_temperature_celsius)"), _BY),
                    unit="celsius",
                    steps=((85, RED),),
                ),
                graph(
                    "Clocks held down",
                    "Are clocks held down for some reason? The slowest GPU sets the pace of a gang.",
                    Query(
                        f"{_HELD} * on (uuid) group_right (node, namespace, gang) "
                        "max by (uuid, device, reason) (fairlead_driver_gpu_throttled)",
                        "{{gang}} {{device}} {{reason}}",
                    ),
                    least=0,
                    most=1,
                    width=12,
                ),
                table(
                    "Its devices",
                    "On which nodes and devices does the gang run, by which claims?",
                    {"gang": "Gang", "namespace": "Namespace", "claim": "Claim", "node": "Node", "device": "Device"},
                    Query(f"max by (namespace, gang, claim, node, device) ({_HELD})", "Held"),
                    width=12,
                ),
            ),
        ),
    ),
)
