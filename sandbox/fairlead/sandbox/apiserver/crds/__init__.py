"""CustomResourceDefinitions: kinds that users add at run time, with structural schemas, CEL rules and printer columns."""
