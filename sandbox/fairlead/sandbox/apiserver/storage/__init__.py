"""What is stored: objects with one revision counter, watch caches that lag behind, and counts of what was answered."""
