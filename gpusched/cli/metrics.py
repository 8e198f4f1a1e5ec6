"""`gpusched metrics`: the status as numbers for Prometheus."""

import signal
import time
from typing import Annotated

from gpusched.cli.options import Option
from gpusched.errors import UsageError

__all__ = ["metrics"]


def metrics(
    output: Annotated[
        str | None,
        Option("Replace this file, as node_exporter's textfile collector wants it.", metavar="FILE"),
    ] = None,
    dcgm_mapping: Annotated[
        str | None,
        Option("Write which jobs each GPU has for dcgm-exporter --hpc-job-mapping-dir DIR.", metavar="DIR"),
    ] = None,
    every: Annotated[
        str | None, Option("Write them again and again, each time after so long: 15s.", metavar="SPAN")
    ] = None,
) -> None:
    """Print devices, jobs and their processes as numbers for Prometheus, or write them into files.

    Example: gpusched metrics --output /var/lib/prometheus/node-exporter/gpusched.prom --every 15s
    """
    from gpusched.api.metrics import metrics_reader
    from gpusched.times import parse_seconds

    if every is not None and output is None and dcgm_mapping is None:
        raise UsageError("--every writes files again and again, and none is named", "add --output FILE")
    pause_s = None if every is None else parse_seconds(every, "--every")
    read = metrics_reader()
    if pause_s is not None:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the end below
    found = read()
    try:
        while True:
            if output is None and dcgm_mapping is None:
                print(found.text, end="")
            if output is not None:
                found.write(output)
            if dcgm_mapping is not None:
                found.write_mapping(dcgm_mapping)
            if pause_s is None:
                return
            time.sleep(pause_s)
            found = read()
    finally:
        if pause_s is not None and dcgm_mapping is not None:  # else the exporter would name jobs that have ended
            found._replace(jobs_by_gpu=dict.fromkeys(found.jobs_by_gpu, "")).write_mapping(dcgm_mapping)
