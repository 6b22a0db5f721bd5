"""What every suite shares: where the recorded answers lie, which cluster e2e runs on, how properties are tried."""

import argparse
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from fairlead.api import names
from fairlead.api.drivers import NVIDIA
from fairlead.sandbox.install import pod_requests

ROOT = Path(__file__).resolve().parent

# A loaded machine is no failure; a failure prints how to replay it. Where CI is set, Hypothesis has a profile of its own
# for it, which tries the same examples each time.
settings.register_profile("fairlead", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
if not os.environ.get("CI"):
    settings.load_profile("fairlead")


def _requests(text: str) -> dict[str, str]:
    try:
        return pod_requests.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--vectors",
        type=Path,
        default=ROOT.parent / "shared" / "vectors",
        help="directory with recorded answers of real Kubernetes (tests/conformance)",
    )
    parser.addoption(
        "--kubeconfig",
        type=Path,
        default=None,
        help="run e2e on this cluster, where the three programs already run; default: a sandbox of its own",
    )
    parser.addoption(
        "--driver",
        choices=[names.DRIVER, NVIDIA],
        default=names.DRIVER,
        help="whose GPUs e2e runs on; gpu.nvidia.com: Fairlead without its own driver, beside NVIDIA's, with manifests in its names",
    )
    parser.addoption(
        "--requests",
        type=_requests,
        default=None,
        help="CPU and memory that each container of the examples requests in e2e: none, or as in cpu=10m,memory=16Mi; "
        "default: as the examples say (up to 16 CPUs and 64Gi)",
    )
