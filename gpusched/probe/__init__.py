"""What reads a host: NVML, a built-in machine profile, a saved snapshot. Only `nvml` and `nvml_events` know pynvml."""
