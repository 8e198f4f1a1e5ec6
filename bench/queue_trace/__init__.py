"""How well gpusched places jobs and orders its queue, on a public trace and beside peers, in simulated time.

Run it with `python -m bench.queue_trace`.
"""
