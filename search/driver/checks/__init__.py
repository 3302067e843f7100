"""Checks of a search before it begins. Each adds its mistakes to the ``Findings``; none writes anything."""
