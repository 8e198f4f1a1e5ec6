"""Which waiting jobs start now, when the others will, and why they wait. See scheduler.py and outlook.py."""
