"""CEL, the Common Expression Language, exactly as Kubernetes evaluates it.

Exists because no CEL library for Python has Kubernetes' dialect. Three doors: `compile_selector` for device selectors,
`compile` with ADMISSION or RULE for policies and CRD rules, `compile` with an Environment of one's own.
"""

from fairlead.cel.columns import DeviceTable, Mask
from fairlead.cel.device import DeviceView
from fairlead.cel.environment import Environment
from fairlead.cel.errors import BudgetError, CelError, CompileError, EvaluationError
from fairlead.cel.kubernetes import ADMISSION, DEVICE, RULE
from fairlead.cel.managed import may_select
from fairlead.cel.program import Program, compile  # noqa: A004 - the word of the trade
from fairlead.cel.reads import Read
from fairlead.cel.selector import COST_MAX, Outcome, Selector, Verdict, admit_selector, compile_selector

MATCH = Outcome.MATCH
NO_MATCH = Outcome.NO_MATCH
ERROR = Outcome.ERROR

__all__ = [
    "ADMISSION",
    "COST_MAX",
    "DEVICE",
    "ERROR",
    "MATCH",
    "NO_MATCH",
    "RULE",
    "BudgetError",
    "CelError",
    "CompileError",
    "DeviceTable",
    "DeviceView",
    "Environment",
    "EvaluationError",
    "Mask",
    "Outcome",
    "Program",
    "Read",
    "Selector",
    "Verdict",
    "admit_selector",
    "compile",
    "compile_selector",
    "may_select",
]
