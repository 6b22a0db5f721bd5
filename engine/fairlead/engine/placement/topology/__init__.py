"""Which nodes the units of a gang may be placed on together: domains, models, subgroups, ranks. `domain_search` is the entrance."""
