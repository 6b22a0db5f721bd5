"""One review: the request (`envelope`), what else its verdict depends on (`facts`), and the verdict with its patch.

In: the bytes of an AdmissionReview, and a frozen snapshot of the cluster. Out: a Verdict, encoded as an AdmissionReview.
Pure; decides nothing itself except which of a pod's claims are managed (`pod_claims`). Entrances: `envelope.decode` and `encode`.
"""
