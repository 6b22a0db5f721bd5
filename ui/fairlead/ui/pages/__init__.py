"""Models as HTML: templates, one style sheet, hand-written SVG. Every page works without scripts, and has none."""
