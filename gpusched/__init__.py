"""gpusched: pack many processes onto few GPUs and keep them running.

Importing the package imports nothing else: no NVML, no NumPy, no framework.
"""

__version__ = "0.1.0"
