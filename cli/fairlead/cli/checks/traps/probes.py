"""Traps of model servers' probes and rollouts: a model loads for minutes, and before that its pod may wait for a GPU.

- The first of startup and liveness probe that gives up ends the container while the model loads. Kubelet's counts begin when the
  container starts, so waiting for a GPU is not among them.
- A pod without readiness and startup probe is ready when its container starts, and one whose readiness probe asks Triton's
  /v2/health/live when the process runs: Services send requests to a server without a model.
- `progressDeadlineSeconds` of a Deployment counts from its creation, hence the wait for a GPU and the load: after it the rollout is
  reported as failed.

Sources: kubernetes.io "Liveness, Readiness, and Startup Probes" and "Deployments" (progress deadline); Triton's health endpoints
(KServe's predict protocol, /v2/health/live and /v2/health/ready).
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.cli.checks.traps.base import Json, Trap, at, has_devices, mapping, mappings, number

LOAD_S = 300
"""How long a model may load at least before a probe may end its container."""
DEADLINE_S = 600
"""Of a Deployment that says nothing."""
SERVERS = ("tritonserver", "vllm", "sglang", "text-generation-inference", "huggingfaceserver")
LIVE = "/v2/health/live"


def of_pod(pod: Json, where: str, *, defaulted: bool = False) -> Iterator[Trap]:
    """The traps of model servers among a pod's containers. `defaulted`: its controller adds a readiness probe where there is none."""
    for index, container in enumerate(mappings(pod, "containers")):
        if not _serves(container):
            continue
        path = f"{where}.containers[{index}]"
        ended = list(_ended(container, path))
        yield from ended or _ready_too_early(container, path, defaulted=defaulted)


def of_rollout(deployment: Json) -> Iterator[Trap]:
    pod = mapping(deployment, "spec", "template", "spec")
    seconds = number(at(deployment, "spec", "progressDeadlineSeconds"), DEADLINE_S)
    if seconds <= DEADLINE_S and has_devices(pod) and any(map(_serves, mappings(pod, "containers"))):
        yield Trap(
            field="spec.progressDeadlineSeconds",
            text=f"{seconds:.0f} s from the rollout's begin, in which a pod waits for its GPU and loads its model: after that the rollout is "
            "reported as failed (ProgressDeadlineExceeded), and kubectl rollout status, Helm and Argo CD give up. Write how long "
            "it may take, 7200 for two hours",
            level="warning",
        )


def _serves(container: Json) -> bool:
    return any(server in str(container.get("image", "")) for server in SERVERS)


def _ended(container: Json, path: str) -> Iterator[Trap]:
    kind = next((each for each in ("startupProbe", "livenessProbe") if container.get(each)), None)
    if kind is None:
        return
    probe = mapping(container, kind)
    lasts = number(probe.get("initialDelaySeconds"), 0)
    lasts += number(probe.get("periodSeconds"), 10) * number(probe.get("failureThreshold"), 3)
    if lasts < LOAD_S:
        yield Trap(
            field=f"{path}.{kind}",
            text=f"ends the container when it is not ready {lasts:.0f} s after its start, and a model loads for minutes: write a "
            f"startupProbe with periodSeconds x failureThreshold of {LOAD_S} or more",
            level="warning",
        )


def _ready_too_early(container: Json, path: str, *, defaulted: bool) -> Iterator[Trap]:
    if container.get("startupProbe"):
        return  # the pod is not ready until it succeeds
    probe = container.get("readinessProbe")
    if not probe and not defaulted:
        yield Trap(
            field=f"{path}.readinessProbe",
            text="is missing: the pod is ready when its container starts, and Services send requests while the model loads for minutes. "
            "Write one that succeeds when the model is loaded (Triton: httpGet /v2/health/ready; vLLM: /v1/models)",
            level="warning",
        )
    elif at(probe, "httpGet", "path") == LIVE:
        yield Trap(
            field=f"{path}.readinessProbe.httpGet.path",
            text=f"{LIVE} answers when Triton's process runs, and Services send requests while the model loads for minutes: write "
            "/v2/health/ready, which answers when it is loaded",
            level="warning",
        )
