"""`python -m tests.chaos`: runs of the campaign, one after the other or side by side."""

from __future__ import annotations

import os
import sys

if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets of strings must not differ from run to run
    os.environ["PYTHONHASHSEED"] = "0"
    os.execv(sys.executable, [sys.executable, "-m", "tests.chaos", *sys.argv[1:]])

from tests.chaos import virtual

virtual.install()

from tests.chaos.main import main  # noqa: E402

main(sys.argv[1:])
