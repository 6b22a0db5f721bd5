"""Figures: each module measures one thing and returns them as data (`figures()`), see __main__.py."""
