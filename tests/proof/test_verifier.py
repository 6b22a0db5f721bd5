"""What makes the verifier one to trust: it is short, and none of its code is the allocator's."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

VERIFIER = Path(__file__).parents[2] / "lib" / "fairlead" / "verify"
LINES_MAX = 400


def code_lines(path: Path) -> int:
    """Without blank lines, comments, imports and docstrings."""
    text = path.read_text()
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            left_out |= set(range(node.lineno, (node.end_lineno or 0) + 1))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            left_out |= set(range(node.lineno, (node.end_lineno or 0) + 1))
    numbered = enumerate(text.splitlines(), 1)
    return sum(1 for number, line in numbered if number not in left_out and line.strip() and line.strip()[0] != "#")


def test_the_verifier_has_at_most_400_lines_of_code():
    counted = {path.name: code_lines(path) for path in sorted(VERIFIER.glob("*.py"))}
    assert sum(counted.values()) <= LINES_MAX, counted


def test_the_verifier_loads_nothing_of_the_engine():
    program = (
        "import sys; import fairlead.verify.check, fairlead.evidence.snapshot_file; "
        "print([name for name in sys.modules if name.startswith(('fairlead.engine', 'fairlead.history', 'fairlead.controller'))])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
