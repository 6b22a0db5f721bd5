"""`fairlead doctor`: why is nothing scheduled? Each cause that is seen in a cluster, the most likely first, with the next step.

Entrance: `diagnosis.Doctor`. Works where half of Fairlead is missing: each cause looks at what could be read, and says nothing of the rest.
"""
