#!/usr/bin/env bash
# The e2e suite on a kind cluster of its own: build the image, install the chart, run the examples, uninstall, clean up.
#
#   e2e/kind/run.sh          (make e2e-kind)
#
# KIND_IMAGE   node image, Kubernetes 1.34 or later      default: kind's own
# KEEP=1       leave the cluster                         default: delete it, whatever happens
# LOGS         where logs go when something fails        default: e2e-kind-logs
# PYTHON       a Python with the test tools              default: .venv/bin/python
#
# Exit code 3: something that this needs is missing; the message says what.
set -euo pipefail
cd "$(dirname "$0")/../.."

CLUSTER=fairlead-e2e
IMAGE=fairlead:e2e
NAMESPACE=fairlead-system
LOGS=${LOGS:-e2e-kind-logs}
PYTHON=${PYTHON:-.venv/bin/python}

missing() {
  echo "e2e-kind: $1" >&2
  echo "Without it: \`make e2e\` runs the same suite on a sandbox; \`make e2e KUBECONFIG=FILE\` on a cluster of yours." >&2
  exit 3
}
command -v docker >/dev/null || missing "docker is not installed; see https://docs.docker.com/engine/install/"
docker info >/dev/null 2>&1 || missing "no docker daemon answers (docker info); start it, or join its group"
command -v kind >/dev/null || missing "kind is not installed; see https://kind.sigs.k8s.io/docs/user/quick-start/#installation"
command -v kubectl >/dev/null || missing "kubectl is not installed; python tools/fetch.py puts it into .venv/bin"
command -v helm >/dev/null || missing "helm is not installed; python tools/fetch.py puts it into .venv/bin"
[ -x "$PYTHON" ] || missing "$PYTHON does not exist; run make test once, or set PYTHON"

work=$(mktemp -d)
export KUBECONFIG=$work/kubeconfig
finish() {
  status=$?
  trap - EXIT
  if [ "$status" -ne 0 ] && [ -s "$KUBECONFIG" ]; then
    mkdir -p "$LOGS"
    kind export logs "$LOGS" --name "$CLUSTER" >/dev/null 2>&1 || true
    kubectl get nodes,pods,jobs,resourceclaims,resourceslices -A -o wide >"$LOGS/objects.txt" 2>&1 || true
    kubectl get gangs,queues,flavors -A -o yaml >"$LOGS/fairlead.yaml" 2>&1 || true
    kubectl get events -A --sort-by=.lastTimestamp >"$LOGS/events.txt" 2>&1 || true
    for each in deployment/fairlead-controller deployment/fairlead-webhook; do
      kubectl -n "$NAMESPACE" logs "$each" --all-pods --prefix >"$LOGS/${each#*/}.log" 2>&1 || true
    done
    kubectl -n "$NAMESPACE" logs -l app.kubernetes.io/component=driver --prefix --tail=-1 >"$LOGS/fairlead-driver.log" 2>&1 || true
    echo "e2e-kind: failed; logs are in $LOGS" >&2
  fi
  if [ -n "${KEEP:-}" ]; then
    kind export kubeconfig --name "$CLUSTER" --kubeconfig e2e-kind.kubeconfig >/dev/null 2>&1 || true
    echo "e2e-kind: the cluster stays; KUBECONFIG=e2e-kind.kubeconfig. Delete it with: kind delete cluster --name $CLUSTER" >&2
  else
    kind delete cluster --name "$CLUSTER" >/dev/null 2>&1 || true
  fi
  rm -rf "$work"
  exit "$status"
}
trap finish EXIT

# Without attestations: beside one, an image of docker's containerd store is an index, and `kind load` fails on what an index names and the
# store lacks (kubernetes-sigs/kind#3795, containerd#11344).
BUILDX_NO_DEFAULT_ATTESTATIONS=1 docker build --quiet --tag "$IMAGE" .
kind delete cluster --name "$CLUSTER" >/dev/null 2>&1 || true  # of a run that was killed
kind create cluster --config e2e/kind/cluster.yaml ${KIND_IMAGE:+--image "$KIND_IMAGE"} --wait 180s
kubectl get --raw /apis/resource.k8s.io/v1 >/dev/null || {
  echo "e2e-kind: the cluster does not serve resource.k8s.io/v1; use a node image of Kubernetes 1.34 or later (KIND_IMAGE)" >&2
  exit 1
}
kind load docker-image "$IMAGE" --name "$CLUSTER"

kubectl create namespace "$NAMESPACE"
kubectl label namespace "$NAMESPACE" fairlead.dev/ignore=true pod-security.kubernetes.io/enforce=privileged
helm install fairlead manifests/chart --namespace "$NAMESPACE" --values manifests/overlays/simulated/values.yaml \
  --set image.repository=fairlead,image.tag=e2e,image.pullPolicy=Never --wait --timeout 5m

"$PYTHON" -m pytest e2e --kubeconfig "$KUBECONFIG" --requests none

helm uninstall fairlead --namespace "$NAMESPACE" --wait --timeout 3m
echo "e2e-kind: passed, and uninstalled cleanly"
