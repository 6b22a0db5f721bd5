"""The book of gangs: one `GangState` for each, which says all that this term knows of it and has under way for it.

`book` has it; `shown` is what of a gang is shown beyond its pods and claims.
"""
