"""Named claims: entries of a pod whose claims the controller makes, under names that the webhook writes into the pod.

In: a review and its facts. Out: which way a pod goes (`way`), the rewritten entries with the annotation that records their sources
(`rewriting`), faults where that annotation is not ours (`provenance`), and the originals put back in a copy (`copies`). Pure.
"""
