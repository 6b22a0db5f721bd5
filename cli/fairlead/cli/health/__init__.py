"""`fairlead doctor` and `fairlead check readiness`: what of a cluster keeps Fairlead from working, and what production still lacks.

Enters: a cluster, read with the user's own rights by `reading`. Leaves: causes, the most likely first (`doctor`), or an answer for each
item of a checklist (`readiness`). Both are pure functions of `seen.Seen`; what may not be read is said, and never guessed.
"""
