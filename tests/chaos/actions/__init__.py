"""What may happen in a step, each with its weight: work that comes, faults that begin and end, tenants that misbehave.

An action draws from the step's own random numbers, so that a step does the same whichever others are left out (shrinking). It returns
what it did, for the log; None where there was nothing to do it to. A fault ends after a while by itself, or at the end of the run.
"""

from importlib import import_module

from tests.chaos.actions.registry import ACTIONS

# In this order, for a seed names actions by their number.
for _name in ("work", "processes", "network", "nodes", "tenants", "attacks", "stolen_tokens"):
    import_module(f"tests.chaos.actions.{_name}")

__all__ = ["ACTIONS"]
