"""Lies and honest missions, as data, and a player that takes each through the real `capsule`."""
