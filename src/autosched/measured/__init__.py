"""Interpretation of measurements: which count, the blame for failed ones, their meaning for the network."""
