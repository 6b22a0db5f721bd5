"""Fairlead / GPUs by holder: which job has which GPU, does it use it, and which GPU is not healthy?"""

from __future__ import annotations

from typing import Final

from monitoring.dashboards.common import NAMESPACE, NODE, QUEUE, RATIO, TO_GANG, increases
from monitoring.grafana import RED, YELLOW, Dashboard, Query, graph, table

_OF: Final = 'node=~"$node", namespace=~"$namespace", queue=~"$queue"'
_HERE: Final = 'node=~"$node"'
_HOLDER: Final = "node, device, namespace, gang, claim, queue"


def _here(metric: str) -> str:
    return f"max by (node, device, uuid) ({metric}{{{_HERE}}})"


DASHBOARD: Final = Dashboard(
    uid="fairlead-gpus",
    title="Fairlead / GPUs by holder",
    question="Which job has which GPU, does it use it, and which GPU is not healthy?",
    variables=(QUEUE, NAMESPACE, NODE),
    rows=(
        (
            "Holders",
            (
                table(
                    "Who has which GPU",
                    "Which gang holds each device, how busy is it, how full its memory? A device that several claims share has a row for "
                    "each; a MIG device has no utilisation of its own.",
                    {
                        "gang": "Gang",
                        "namespace": "Namespace",
                        "claim": "Claim",
                        "queue": "Queue",
                        "node": "Node",
                        "device": "Device",
                    },
                    Query(f"max by ({_HOLDER}) (fairlead:device_holder:info{{{_OF}}})", "Held"),
                    Query(
                        f"max by ({_HOLDER}) (fairlead:device_utilization:ratio{{{_OF}}})", "Busy", unit="percentunit"
                    ),
                    Query(f"max by ({_HOLDER}) (fairlead:device_memory:ratio{{{_OF}}})", "Memory", unit="percentunit"),
                    height=12,
                    drill_down=TO_GANG,
                ),
                graph(
                    "Devices by queue",
                    "How many devices do the claims of each queue hold on nodes?",
                    Query(f"count by (queue) (fairlead:device_holder:info{{{_OF}}})", "{{queue}}"),
                    stacked=True,
                ),
                graph(
                    "Utilisation by queue",
                    "How busy are the GPUs that each queue holds?",
                    Query(f"avg by (queue) (fairlead:device_utilization:ratio{{{_OF}}})", "{{queue}}"),
                    **RATIO,
                ),
                graph(
                    "Idle GPUs in claims",
                    "How many GPUs does each namespace hold that are less than 5 % busy now?",
                    Query(f"count by (namespace) (fairlead:device_utilization:ratio{{{_OF}}} < 0.05)", "{{namespace}}"),
                    stacked=True,
                ),
                table(
                    "Least used gangs of the last hour",
                    "Which gangs hold GPUs and hardly use them?",
                    {"gang": "Gang", "namespace": "Namespace", "queue": "Queue"},
                    Query(
                        "bottomk(20, avg by (namespace, gang, queue) "
                        f"(avg_over_time(fairlead:device_utilization:ratio{{{_OF}}}[1h])))",
                        "Busy",
                        unit="percentunit",
                    ),
                    width=12,
                    drill_down=TO_GANG,
                ),
                table(
                    "Devices that no claim holds",
                    "Which GPUs report a load and are in no claim? A busy one is used past Fairlead.",
                    {"node": "Node", "device": "Device"},
                    Query(
                        f"{_here('fairlead_driver_gpu_utilization_percent')} "
                        "unless on (uuid) fairlead_driver_device_claim",
                        "Busy",
                        unit="percent",
                    ),
                    width=12,
                ),
            ),
        ),
        (
            "Health",
            (
                graph(
                    "Temperature",
                    "Which GPUs are hottest?",
                    Query(f"topk(10, {_here('fairlead_driver_gpu_temperature_celsius')})", "{{node}} {{device}}"),
                    unit="celsius",
                    steps=((85, RED),),
                ),
                graph(
                    "Clocks held down",
                    "How many GPUs are slowed down, and why?",
                    Query(
                        f"sum by (reason) (max by (uuid, reason) (fairlead_driver_gpu_throttled{{{_HERE}}}))",
                        "{{reason}}",
                    ),
                ),
                graph(
                    "Power",
                    "How much power do the GPUs of each node draw?",
                    Query(f"sum by (node) ({_here('fairlead_driver_gpu_power_watts')})", "{{node}}"),
                    unit="watt",
                ),
                graph(
                    "Xids",
                    "Which errors has NVIDIA's driver reported since Fairlead's started?",
                    Query(
                        f"max by (node, device, xid) (fairlead_driver_gpu_xids_total{{{_HERE}}})",
                        "{{node}} {{device}} Xid {{xid}}",
                    ),
                ),
                graph(
                    "ECC errors",
                    "Does the memory of a GPU have errors, corrected or not?",
                    Query(
                        increases("fairlead_driver_gpu_ecc_errors_total", by="node, kind", where=_HERE),
                        "{{node}} {{kind}}",
                    ),
                ),
                graph(
                    "Remapped rows",
                    "How many rows of memory were replaced, which GPUs need a reset for it (pending), and which have none left (failed)?",
                    Query(
                        f"sum by (node, kind) (max by (node, uuid, kind) (fairlead_driver_gpu_remapped_rows{{{_HERE}}}))",
                        "{{node}} {{kind}}",
                    ),
                ),
                graph(
                    "Active NVLinks",
                    "Does a GPU have fewer NVLinks than its neighbours?",
                    Query(f"min by (node) ({_here('fairlead_driver_gpu_nvlink_active_links')})", "{{node}} least"),
                    Query(f"max by (node) ({_here('fairlead_driver_gpu_nvlink_active_links')})", "{{node}} most"),
                ),
                graph(
                    "Clocks",
                    "Is a node's slowest GPU slower than it should be?",
                    Query(f"min by (node) ({_here('fairlead_driver_gpu_sm_clock_hertz')})", "{{node}} SM, slowest"),
                    Query(
                        f"min by (node) ({_here('fairlead_driver_gpu_memory_clock_hertz')})", "{{node}} memory, slowest"
                    ),
                    unit="hertz",
                ),
                graph(
                    "Tainted devices",
                    "On which nodes has the driver tainted devices? What DeviceTaintRules taint, such as `fairlead device drain`, is drained or broken in "
                    "the cluster's devices by state, once no claim holds it.",
                    Query(f"max by (node) (fairlead_driver_devices_tainted{{{_HERE}}})", "{{node}}"),
                    steps=((1, YELLOW),),
                ),
                graph(
                    "GPUs in repair",
                    "How many GPUs are kept from claims by a repair that is under way, and by one that failed?",
                    Query(
                        f"sum by (state) (max by (node, state) (fairlead_driver_gpus_repairing{{{_HERE}}}))",
                        "{{state}}",
                    ),
                    steps=((1, YELLOW),),
                ),
            ),
        ),
    ),
)
