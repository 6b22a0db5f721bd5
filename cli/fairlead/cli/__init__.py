"""The `fairlead` command, also as `kubectl fairlead`: parses flags, calls one program or view, prints.

Enters: arguments, a kubeconfig, files. Leaves: text, JSON or YAML, and an exit code. Decides nothing itself.
Packages by what they are for: programs (run a part of Fairlead), views (look at a cluster), operate (change one), checks (verdicts
without a cluster), health, imports, demo, simulate. A command is a class where its work is done; `main` has the table.
"""
