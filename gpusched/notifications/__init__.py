"""Notifications: what is sent of an event, and the process that sends it. It must not know the queue."""
