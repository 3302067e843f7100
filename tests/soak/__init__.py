"""Fault injection: real searches, what breaks while they run, and an oracle that reads what they left."""
