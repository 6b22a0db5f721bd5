"""Simulated days: a cluster's arrivals and true run times, against which forecasts are held."""
