"""Models as HTML: templates, one style sheet, hand-written SVG. Every page works without scripts; those that are live load htmx for it."""
