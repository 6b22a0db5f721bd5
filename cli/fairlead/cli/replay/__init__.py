"""`replay`, `snapshot`, and the anonymising `record`: what a leader recorded, decided again; what a cluster holds now, as a file."""
