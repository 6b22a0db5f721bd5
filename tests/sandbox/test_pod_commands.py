"""What a pod's container would run: Kubernetes' own rules kept, and an error for what a cluster could not run."""

import copy
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fairlead.sandbox.install.pod_commands import PodError, command_of, port_number

POD: dict[str, Any] = {
    "metadata": {"name": "driver-1", "namespace": "fairlead-system", "uid": "u-1"},
    "spec": {
        "nodeName": "n1",
        "containers": [
            {
                "name": "driver",
                "args": [
                    "driver",
                    "--plugins-dir=/var/lib/kubelet/plugins",
                    "--registry-dir=/registry",
                    "--metrics-bind=0.0.0.0:8080",
                    "--identity=$(NODE_NAME)-$(POD_UID)",
                ],
                "env": [
                    {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                    {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
                    {"name": "PLAIN", "value": "x"},
                ],
                "ports": [{"name": "metrics", "containerPort": 8080}],
                "volumeMounts": [
                    {"name": "plugin", "mountPath": "/var/lib/kubelet/plugins/gpu.fairlead.dev"},
                    {"name": "registry", "mountPath": "/registry"},
                    {"name": "tls", "mountPath": "/etc/tls"},
                ],
            }
        ],
        "volumes": [
            {"name": "plugin", "hostPath": {"path": "/var/lib/kubelet/plugins/gpu.fairlead.dev"}},
            {"name": "registry", "hostPath": {"path": "/var/lib/kubelet/plugins_registry"}},
            {"name": "tls", "secret": {"secretName": "tls"}},
        ],
    },
}
HOST_PATHS = {
    "/var/lib/kubelet/plugins": Path("/node/plugins"),
    "/var/lib/kubelet/plugins_registry": Path("/node/registry"),
}


def command(pod=POD):
    ports = count(40000)
    return command_of(pod, host_paths=HOST_PATHS, volumes={"tls": Path("/secrets/tls")}, free_port=lambda: next(ports))


def changed(**container):
    pod = copy.deepcopy(POD)
    pod["spec"]["containers"][0] |= container
    return pod


def test_paths_ports_and_variables_are_those_of_the_node_and_of_this_machine():
    found = command()
    assert found.arguments == (
        "driver",
        "--plugins-dir=/node/plugins",
        "--registry-dir=/node/registry",
        "--metrics-bind=127.0.0.1:40000",
        "--identity=n1-u-1",
    )
    assert found.environment == {"NODE_NAME": "n1", "POD_UID": "u-1", "PLAIN": "x"}
    assert found.ports == {8080: 40000}


@pytest.mark.parametrize(
    ("container", "said"),
    [
        ({"args": ["--cdi-dir=/var/run/cdi"]}, "--cdi-dir=/var/run/cdi': no volume is mounted there"),
        ({"args": ["--bind=0.0.0.0:9443"]}, "port 9443 is not among the container's ports"),
        ({"args": ["--identity=$(NOBODY)"]}, "NOBODY is not in env"),
        ({"command": ["sh"]}, "the image's entry point is `fairlead`"),
        ({"volumeMounts": [{"name": "x", "mountPath": "/x"}]}, "'x' is no volume of the pod"),
        ({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {}}}]}, "env A: valueFrom"),
    ],
)
def test_what_a_cluster_could_not_run_is_an_error(container, said):
    with pytest.raises(PodError) as caught:
        command(changed(**container))
    assert said in str(caught.value)


def test_a_host_path_that_a_node_does_not_have_is_an_error():
    pod = changed(args=["--registry-dir=/registry"])
    pod["spec"]["volumes"][1]["hostPath"]["path"] = "/opt/elsewhere"
    with pytest.raises(PodError, match="/opt/elsewhere is not known of the node"):
        command(pod)


def test_a_mount_under_other_names_than_on_the_host_does_not_cover_what_lies_above_it():
    pod = changed(args=["--plugins-dir=/var/lib/kubelet/plugins"])
    pod["spec"]["volumes"][0]["hostPath"]["path"] = "/var/lib/kubelet/plugins/other"
    with pytest.raises(PodError, match="no volume is mounted there"):
        command(pod)


def test_ports_are_found_by_name_and_by_number():
    container = POD["spec"]["containers"][0]
    assert port_number(container, "metrics") == port_number(container, 8080) == 8080
    with pytest.raises(PodError, match="port 'http' is not among its ports"):
        port_number(container, "http")
