"""Objects in, frozen models for people out; pure."""
