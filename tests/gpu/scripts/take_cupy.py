"""An unchanged CuPy script that takes 256 MiB, lets them go, and ends, or waits to be killed."""

import sys

import cupy

held = [cupy.zeros(4 << 20, dtype=cupy.float32) for _ in range(16)]
cupy.cuda.Device().synchronize()
del held
print("taken", flush=True)
sys.stdin.read()
