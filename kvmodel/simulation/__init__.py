"""Event simulation: the referee of the closed forms."""
