"""Reading raw Kubernetes objects: fields by path, the pod templates of each workload kind, claim specs, device models.

In: decoded JSON as the apiserver sent it, and devices of ResourceSlices. Out: typed values, or MalformedError with the field's
path. Reviews, gangs and policies play no part. No single entrance: the other packages call these modules directly.
"""
