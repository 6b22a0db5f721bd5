"""The cluster's facts for each review: informers for what is small and read often, live lookups for the rest.

In: a Review, and watches of the apiserver. Out: a frozen Facts snapshot. Writes nothing. Entrance: `informer_cache.InformerCache`,
whose `facts(review)` may look something up and whose `cached_facts(review)` never does.
"""
