"""Monitoring and cost: what scrapes, shows, alerts and bills."""

from __future__ import annotations

import re

from fairlead.api import names
from fairlead.cli.health import values
from fairlead.cli.health.readiness.infrastructure import gpu_nodes, monitors
from fairlead.cli.health.readiness.model import RULES, SERVICE_MONITORS, Answer, Group, failed, passed, unknown
from fairlead.cli.health.readiness.scheduling import has_quota, namespaces, quota_keys, spot_nodes
from fairlead.cli.health.seen import Seen, devices_of
from fairlead.kube import device_usage
from fairlead.kube.resources import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    FLAVORS,
    NAMESPACES,
    QUEUES,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
    Raw,
)

INTERVAL_MOST_S = 30.0
FLEET_LEAST, FLEET_MOST, MEMORY_LEAST = 65, 85, 80
_SUBJECTS = {
    "utilisation": r"gpu_utilization|GPU_UTIL|GR_ENGINE_ACTIVE",
    "temperature": r"temperature|GPU_TEMP",
    "memory": r"memory_used|FB_USED|FB_FREE",
    "NVLink": r"nvlink|NVLINK",
}
_ALERTS = {
    "temperature": r"temperature|GPU_TEMP",
    "underutilisation": r"(?:utilization|GPU_UTIL|GR_ENGINE_ACTIVE)[^<]*<",
    "memory": r"(?:memory_used|device_memory|FB_USED|FB_FREE)",
    "NCCL hangs": r"nvlink|NVLINK",
}
_HANDLERS = ("node-termination-handler", "karpenter")
NO_OPERATOR = "the Prometheus operator is not installed; what else scrapes is not visible"
EXPRESSION_MAX = 20_000


def _without_operator(seen: Seen) -> Answer | None:
    if gap := seen.gap(SERVICE_MONITORS, RULES):
        return unknown(gap)
    return None if seen.listed(SERVICE_MONITORS).served else unknown(NO_OPERATOR)


MONITORING = Group("monitoring")


@MONITORING.item(
    "Prometheus scrapes GPU metrics every 30 s",
    "helm upgrade with monitoring.enabled=true and monitoring.serviceMonitor.interval=30s (docs/monitoring.md)",
    given=_without_operator,
)
def scrape_interval(seen: Seen) -> Answer:
    found = monitors(seen, "dcgm", "fairlead")
    if not found:
        return failed("no ServiceMonitor selects the DCGM exporter or Fairlead's driver")
    slow = [
        f"{values.key(each)} ({interval})"
        for each in found
        for interval in _intervals(each)
        if (seconds := _seconds(interval)) is None or seconds > INTERVAL_MOST_S
    ]
    if len({each.partition(" ")[0] for each in slow}) == len(found):
        return failed(f"less often than every 30 s: {values.some(slow)}")
    return passed(f"every 30 s or more often: {values.some(map(values.key, found))}")


def _intervals(monitor: Raw) -> list[str]:
    endpoints = values.objects(monitor, "spec", "endpoints") + values.objects(monitor, "spec", "podMetricsEndpoints")
    return [values.text(each, "interval") or "Prometheus' default" for each in endpoints]


def _seconds(text: str) -> float | None:
    """The seconds of a duration of Prometheus in one unit."""
    match = re.fullmatch(r"(\d{1,9})(ms|s|m|h)", text)
    return int(match[1]) * {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}[match[2]] if match else None


@MONITORING.item(
    "dashboards of utilisation, temperature, memory and NVLink",
    "helm upgrade with monitoring.enabled=true, or import manifests/chart/files/dashboards (docs/dashboards.md)",
    CONFIG_MAPS,
)
def dashboards(seen: Seen) -> Answer:
    shown = "\n".join(
        text
        for each in seen.items(CONFIG_MAPS)
        for text in values.mapping(each, "data").values()
        if isinstance(text, str)
    )
    if not shown:
        return unknown(
            "no ConfigMap has the label grafana_dashboard; dashboards that Grafana keeps itself are not visible"
        )
    missing = [subject for subject, pattern in _SUBJECTS.items() if not re.search(pattern, shown)]
    if missing:
        return failed(f"no dashboard shows {', '.join(missing)}")
    return passed("dashboards show utilisation, temperature, memory and NVLink")


def _expressions(seen: Seen) -> list[str]:
    return [
        rule["expr"][:EXPRESSION_MAX]
        for each in seen.items(RULES)
        for group in values.objects(each, "spec", "groups")
        for rule in values.objects(group, "rules")
        if isinstance(rule.get("alert"), str) and isinstance(rule.get("expr"), str)
    ]


@MONITORING.item(
    "alerts for temperature, underutilisation, memory leaks and NCCL hangs",
    "helm upgrade with monitoring.enabled=true, or load manifests/chart/files/rules.yaml (docs/monitoring.md)",
    given=_without_operator,
)
def alerts(seen: Seen) -> Answer:
    found = _expressions(seen)
    missing = [subject for subject, pattern in _ALERTS.items() if not any(re.search(pattern, each) for each in found)]
    if missing:
        return failed(f"no alert for {', '.join(missing)}")
    return passed("alerts for temperature, underutilisation, memory and NCCL hangs")


@MONITORING.item(
    "cost tracking with attribution of idle time",
    "a price on each Flavor (docs/queue-options.md), and a ledger that is kept (docs/ledger.md)",
    FLAVORS,
    DEPLOYMENTS,
)
def cost_tracking(seen: Seen) -> Answer:
    priced = [values.name(each) for each in seen.items(FLAVORS) if values.sequence(each, "spec", "price")]
    tools = [values.key(each) for part in ("opencost", "kubecost") for each in seen.workloads(part)]
    if priced:
        return passed(f"flavors with a price, which the ledger charges, idle time apart: {values.some(priced)}")
    if tools:
        return passed(f"{values.some(tools)} runs; Fairlead's driver gives it the devices of claims")
    return failed("no Flavor has a price, and neither OpenCost nor Kubecost runs")


@MONITORING.item(
    "metrics of queues: pending workloads and admission wait",
    "helm upgrade with monitoring.enabled=true; fairlead_queue_wait_seconds and others are in docs/metrics.md",
    given=_without_operator,
)
def queue_metrics(seen: Seen) -> Answer:
    found = [each for each in monitors(seen, "fairlead", "kueue") if "dcgm" not in values.name(each)]
    if not found:
        return failed("no ServiceMonitor selects Fairlead's controller or Kueue")
    return passed(f"scraped by {values.some(map(values.key, found))}")


COST = Group("cost")


@COST.item(
    "targets: 65 to 85 % of the fleet in use, over 80 % of memory in each pod",
    "fairlead cost --by queue and the dashboard of GPUs by holder say which gangs idle; `idle` of a Queue acts on them (docs/queue-options.md)",
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
def utilisation(seen: Seen) -> Answer:
    """Judges what the driver wrote last into claims that hold devices; free devices count as idle."""
    devices = sum(len(devices_of(each)) for each in seen.slices)
    used = [
        usage
        for claim in seen.managed_claims.values()
        for entry in values.objects(claim, "status", "devices")
        if (usage := device_usage.read(entry.get("data"))) is not None
        and 0 <= seen.now - usage.sampled_at_s <= device_usage.FRESH_S
    ]
    busy = [usage.utilization_percent for usage in used if usage.utilization_percent is not None and not usage.shared]
    if not busy or not devices:
        return unknown("no claim says how busy its devices are (docs/gpu-metrics.md)")
    fleet = min(100.0, sum(busy) / devices)
    parts = [
        100 * usage.memory_used_peak_bytes / usage.memory_bytes
        for usage in used
        if usage.memory_used_peak_bytes is not None and usage.memory_bytes
    ]
    memory = sum(parts) / len(parts) if parts else None
    told = f"{fleet:.0f} % of {devices} devices" + ("" if memory is None else f", {memory:.0f} % of memory")
    if fleet < FLEET_LEAST or (memory is not None and memory < MEMORY_LEAST):
        return failed(f"in use now: {told}")
    above = f", above {FLEET_MOST} %: little is left for what comes next" if fleet > FLEET_MOST else ""
    return passed(f"in use now: {told}{above}")


@COST.item(
    "alerts of idle cost",
    "the alert FairleadGPUUnderutilized (monitoring.enabled=true), or `idle` of a Queue (docs/queue-options.md)",
)
def idle_alerts(seen: Seen) -> Answer:
    actions = [values.name(each) for each in seen.items(QUEUES) if values.mapping(each, "spec", "idle")]
    if actions:
        return passed(f"queues that act on idle devices: {values.some(actions)}")
    if answer := _without_operator(seen):
        return answer
    if any(re.search(_ALERTS["underutilisation"], each) for each in _expressions(seen)):
        return passed("an alert of underutilisation")
    return failed("no alert of underutilisation, and no queue with `idle`")


@COST.item(
    "a spot strategy with handling of interruptions",
    "install your provider's termination handler; Fairlead reads its taints (docs/moves.md)",
    given=gpu_nodes,
)
def spot_interruptions(seen: Seen) -> Answer:
    nodes = spot_nodes(seen)
    if not nodes:
        return unknown("no GPU node is labelled as spot capacity")
    if gap := seen.gap(DEPLOYMENTS, DAEMON_SETS):
        return unknown(gap)
    handlers = [values.key(each) for part in _HANDLERS for each in seen.workloads(part)]
    if handlers:
        return passed(f"{len(nodes)} spot nodes; {values.some(handlers)} announces interruptions")
    if any("cloud.google.com/gke-spot" in values.labels_of(node) for node in nodes):
        return passed(f"{len(nodes)} spot nodes of GKE, which announces interruptions itself")
    return failed(f"{len(nodes)} spot nodes, and nothing announces interruptions as a taint")


@COST.item(
    "reservations for the baseline", "reserve with your provider what the queues deserve together", given=gpu_nodes
)
def reservations(seen: Seen) -> Answer:
    reserved = [
        node
        for node in seen.gpu_nodes
        if values.labels_of(node).get("karpenter.sh/capacity-type") == "reserved"
        or values.labels_of(node).get("eks.amazonaws.com/capacityType") == "CAPACITY_BLOCK"
        or "karpenter.k8s.aws/capacity-reservation-id" in values.labels_of(node)
    ]
    if reserved:
        return passed(f"{len(reserved)} of {len(seen.gpu_nodes)} GPU nodes are reserved capacity")
    return unknown("no GPU node is labelled as reserved capacity; contracts and owned machines are not visible")


@COST.item(
    "quotas of namespaces for chargeback",
    "fairlead tenant create NAME binds namespaces to a queue and gives them quotas (docs/tenants.md); the bill: fairlead cost --by namespace",
    RESOURCE_QUOTAS,
    NAMESPACES,
    given=namespaces,
)
def chargeback(seen: Seen) -> Answer:
    labels = {values.name(each): values.labels_of(each) for each in seen.items(NAMESPACES)}
    open_ = [
        namespace
        for namespace in seen.gpu_namespaces
        if not has_quota(quota_keys(seen, namespace), "GPUs") and names.QUEUE not in labels.get(namespace, {})
    ]
    if open_:
        return failed(f"neither a quota of GPUs nor the label {names.QUEUE}: {values.some(open_)}")
    return passed(
        f"all {len(seen.gpu_namespaces)} namespaces with GPU work have a quota of GPUs, or are bound to a queue"
    )
