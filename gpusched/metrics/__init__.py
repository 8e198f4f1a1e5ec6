"""The status as numbers for Prometheus: which there are, their text, and the files that DCGM's exporter reads."""
