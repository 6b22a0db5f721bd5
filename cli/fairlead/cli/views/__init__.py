"""`fairlead queues | gangs | explain`: what the controller wrote into the status of Queues and Gangs, for people.

Enters: Queue, Gang and Pod objects of a cluster. Leaves: tables and paragraphs as wide as the terminal, or JSON and YAML.
Rows and explanations are pure functions of the objects; nothing is computed again.
"""
