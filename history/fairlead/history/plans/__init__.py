"""Plans as recordings keep them: the canonical form, its digest, and the compact form that people read."""
