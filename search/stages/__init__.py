"""Carry searches through their stages: search, select, test."""
