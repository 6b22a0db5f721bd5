"""`fairlead check FILE… | cel EXPR`: what a cluster would answer, without one.

Enters: manifests or a CEL selector. Leaves: a verdict for each, and exit status 0 (admitted), 1 (refused) or 2 (unreadable).
The verdicts are the webhook's and the CEL library's own.
"""
