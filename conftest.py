"""What every suite shares: where the recorded answers lie, which cluster e2e runs on, how properties are tried."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent

# A loaded machine is no failure; a failure prints how to replay it. Where CI is set, Hypothesis has a profile of its own
# for it, which tries the same examples each time.
settings.register_profile("fairlead", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
if not os.environ.get("CI"):
    settings.load_profile("fairlead")


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
