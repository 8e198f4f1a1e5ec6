"""Towers: one process trains on several devices at once, in step; each has its part of every batch."""
