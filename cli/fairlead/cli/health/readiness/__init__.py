"""`fairlead check readiness`: what a GPU cluster needs before production, item by item: pass, fail, or not checkable here.

Entrance: `checklist.Readiness`. Each item is a pure function of what was read (`model.Item`), in a module for each group or two.
"""
