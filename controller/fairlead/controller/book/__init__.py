"""The book of gangs: one `GangState` for each, which says all that this term knows of it and has under way for it.

`gang_state` lists the fields; `book` finds, replaces and forgets them; `field` is how the two are joined.
"""
