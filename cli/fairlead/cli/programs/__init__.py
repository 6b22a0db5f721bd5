"""`fairlead driver | webhook | controller | ui`, and `drain`, which empties a cluster before they are uninstalled.

Enters: flags, which become the fields of a program's options. Leaves: a process that runs until SIGTERM, its logs and its
exit code. `fairlead.cli.serve` runs any of the three.
"""
