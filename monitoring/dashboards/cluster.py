"""Fairlead / Cluster: is all well, and what are the GPUs doing?"""

from __future__ import annotations

from typing import Final

from monitoring.dashboards.common import FLAVOR, RATIO, TO_QUEUE, UTILISED, events, increases
from monitoring.grafana import BLUE, RED, Dashboard, Query, graph, stat, table

_DEVICES: Final = 'fairlead_cluster_devices{flavor=~"$flavor"}'

DASHBOARD: Final = Dashboard(
    uid="fairlead-cluster",
    title="Fairlead / Cluster",
    question="Is all well, and what are the GPUs of this cluster doing?",
    variables=(FLAVOR,),
    rows=(
        (
            "Now",
            (
                stat("Devices", "How many devices does the cluster have?", Query(f"sum({_DEVICES})"), base=BLUE),
                stat(
                    "In claims",
                    "Which part of the devices is held by claims, whether they compute or not?",
                    Query(
                        'sum(fairlead_cluster_devices{flavor=~"$flavor", state=~"used|idle|starting"})'
                        f" / sum({_DEVICES})"
                    ),
                    unit="percentunit",
                    base=BLUE,
                ),
                stat(
                    "Utilisation",
                    "How busy are the GPUs on average? Those without a claim count as 0, those in MIG mode do not count.",
                    Query("fairlead:fleet_utilization:ratio"),
                    **UTILISED,
                ),
                stat(
                    "Waiting gangs",
                    "How many gangs are complete and wait for devices?",
                    Query("sum(fairlead_gangs_waiting) or vector(0)"),
                    base=BLUE,
                ),
                stat(
                    "Tainted devices",
                    "How many devices does a driver report as unhealthy?",
                    Query("sum(fairlead_driver_devices_tainted)"),
                    steps=((1, RED),),
                ),
                stat(
                    "Firing alerts",
                    "How many alerts of Fairlead fire?",
                    Query('count(ALERTS{alertname=~"Fairlead.+", alertstate="firing"}) or vector(0)'),
                    steps=((1, RED),),
                ),
            ),
        ),
        (
            "Devices",
            (
                graph(
                    "Devices by state",
                    "What becomes of the devices: used, idle in a claim, starting, nominated for a gang, fragmented (free, but of no use "
                    "to what is usually requested), free, drained, broken, unknown?",
                    Query(f"sum by (state) ({_DEVICES})", "{{state}}"),
                    stacked=True,
                    width=12,
                ),
                graph(
                    "Held and utilised, by flavor",
                    "Which part of each flavor is held by claims, and of the devices in claims how busy are they?",
                    Query(
                        'sum by (flavor) (fairlead_cluster_devices{flavor=~"$flavor", state=~"used|idle|starting"})'
                        f" / sum by (flavor) ({_DEVICES})",
                        "{{flavor}} held",
                    ),
                    Query(
                        'avg by (flavor) (fairlead:device_utilization:ratio{flavor=~"$flavor"})', "{{flavor}} utilised"
                    ),
                    **RATIO,
                    width=12,
                ),
                graph(
                    "Power",
                    "How much power do the GPUs draw?",
                    Query("sum(max by (uuid) (fairlead_driver_gpu_power_watts))", "drawn"),
                    Query("sum(max by (uuid) (fairlead_driver_gpu_power_limit_watts))", "limit"),
                    unit="watt",
                    least=0,
                ),
                graph(
                    "Memory",
                    "How much of the GPUs' memory is in use?",
                    Query(
                        "sum(max by (uuid) (fairlead_driver_gpu_memory_used_bytes)) "
                        "/ sum(max by (uuid) (fairlead_driver_gpu_memory_bytes))",
                        "in use",
                    ),
                    **RATIO,
                ),
                graph(
                    "Drivers",
                    "On how many nodes does a driver answer, and on how many does it not?",
                    Query('count(up{job="fairlead-driver"} == 1)', "up"),
                    Query('count(up{job="fairlead-driver"} == 0) or vector(0)', "down"),
                ),
            ),
        ),
        (
            "Gangs",
            (
                graph(
                    "Gangs by phase",
                    "How many gangs are in which phase?",
                    Query("sum by (phase) (fairlead_controller_gangs)", "{{phase}}"),
                    stacked=True,
                ),
                graph(
                    "Admissions",
                    "How many gangs are admitted, and how many admissions are taken back?",
                    Query(increases("fairlead_controller_admissions_total", by="outcome"), "{{outcome}}"),
                ),
                graph(
                    "Evictions",
                    "How many gangs are evicted, for what, and how many evictions are refused?",
                    Query(events("fairlead_controller_evictions_total", by="kind, outcome"), "{{kind}} {{outcome}}"),
                ),
                graph(
                    "Moves",
                    "How many places were held for gangs that move: did their new pods get them, or did the time run out?",
                    Query(increases("fairlead_controller_moves_total", by="outcome"), "{{outcome}}"),
                ),
                graph(
                    "GPU time that moves cost",
                    "How much work do moved gangs repeat, for room or since a node goes, as it was when the moves were decided?",
                    Query(events("fairlead_controller_moved_gpu_seconds_total", by="cause"), "{{cause}}"),
                    unit="s",
                ),
                table(
                    "Queues now",
                    "What does each queue use, with the queues below it, what does it deserve, and what do its own gangs wait for?",
                    {"queue": "Queue", "flavor": "Flavor"},
                    Query('sum by (queue, flavor) (fairlead_queue_used{flavor=~"$flavor"})', "Used"),
                    Query('sum by (queue, flavor) (fairlead_queue_deserved{flavor=~"$flavor"})', "Deserved"),
                    Query('sum by (queue, flavor) (fairlead_queue_demand{flavor=~"$flavor"})', "Waiting for"),
                    drill_down=TO_QUEUE,
                ),
            ),
        ),
    ),
)
