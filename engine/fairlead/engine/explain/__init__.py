"""Why a gang found no place: from counts of devices and nodes to a `Reason`.

In: the failed placement, the nodes and the ledger at the end of a decision. Out: a `types.reasons.Reason` with code, sentence,
evidence and advice (`explainer.Explainer.explain`, the one entrance), and its bounded form for Gang status (`explainer.explanation`).
Changes nothing.
"""
