"""Errors of CEL expressions: a CompileError does not depend on input, an EvaluationError does.

A CompileError has the place of each mistake and, where there is one, a suggestion of what to write instead.
"""

from __future__ import annotations

from dataclasses import dataclass


class CelError(Exception):
    """The base of both errors."""


@dataclass(frozen=True, slots=True)
class Issue:
    """One mistake at one place; `offset` counts code points from the start of the expression."""

    message: str
    offset: int
    hint: str | None = None


class CompileError(CelError):
    """The expression is no valid program. `line` and `column` (from 1) are those of the first issue."""

    def __init__(self, expression: str, issues: tuple[Issue, ...]) -> None:
        self.expression = expression
        self.issues = issues
        first = issues[0]
        self.message = first.message
        self.hint = first.hint
        self.line, self.column = locate(expression, first.offset)
        super().__init__(render(expression, issues))

    def again(self) -> CompileError:
        """The same error, to be raised once more: a traceback would hold the frames of the call that raised it before."""
        return CompileError(self.expression, self.issues)


class EvaluationError(CelError):
    """The program fails on this input: a missing key, an overflow, a type that no overload takes."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)


class AllowanceError(CelError):
    """Compiling or evaluating would take more than the caller may spend (`allowance`); says nothing about the expression."""


class BudgetError(EvaluationError):
    """The evaluation has used up its budget."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded; loop over less, or simplify")


def locate(expression: str, offset: int) -> tuple[int, int]:
    """Line and column, both from 1."""
    before = expression[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


_EXCERPT_MAX = 120


def render(expression: str, issues: tuple[Issue, ...]) -> str:
    """Every issue as `line:column: message`, its line, and a caret below the place."""
    shown: list[str] = []
    lines = expression.split("\n")
    for issue in issues[:10]:
        line, column = locate(expression, issue.offset)
        text = lines[line - 1] if line <= len(lines) else ""
        start = 0
        if len(text) > _EXCERPT_MAX:
            start = max(0, min(column - 1 - _EXCERPT_MAX // 2, len(text) - _EXCERPT_MAX))
            text = text[start : start + _EXCERPT_MAX]
        hint = f" ({issue.hint})" if issue.hint else ""
        shown.append(f"{line}:{column}: {issue.message}{hint}")
        if text.strip():
            shown.extend((f" | {text}", f" | {' ' * (column - 1 - start)}^"))
    if len(issues) > 10:
        shown.append(f"and {len(issues) - 10} more")
    return "\n".join(shown)
