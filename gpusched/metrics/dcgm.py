"""Which jobs are on which GPU, for DCGM's exporter: a file for each GPU, named by its index, with a job in each line.

Its option is --hpc-job-mapping-dir: each metric of a GPU is then there once for each job, with the label `hpc_job`. It
takes whole numbers for names only, so the jobs on the instances of a GPU (MIG) are those of the GPU.
Source: github.com/NVIDIA/dcgm-exporter, internal/pkg/transformation/hpc.go.
"""

from collections.abc import Mapping

from gpusched.execution.snapshot import Snapshot

__all__ = ["jobs_by_gpu"]


def jobs_by_gpu(moment: Snapshot) -> Mapping[str, str]:
    """Return the content of each GPU's file by its name; empty for a GPU without jobs."""
    on = {device.uuid: str(device.index) for device in moment.inventory.devices}
    jobs: dict[str, dict[str, None]] = {index: {} for index in on.values()}
    for lease in moment.leases:
        if lease.device_uuid in on:
            jobs[on[lease.device_uuid]][lease.job_label] = None
    return {index: "".join(f"{job}\n" for job in found) for index, found in jobs.items()}
