"""Options that every suite shares: where the recorded answers lie, and which cluster e2e runs on."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent


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
