"""What a person asks the daemon for: a submission, which holds all that its job needs to start at any later time."""

from typing import Annotated, Final

import msgspec

from gpusched.errors import UsageError
from gpusched.model.array import Array
from gpusched.model.footprint import MeasuredUse
from gpusched.model.plan import Request
from gpusched.model.queue_group import GroupName
from gpusched.model.workload import Workload

__all__ = [
    "NODE_PATIENCE_S",
    "ClusterJobRef",
    "CommandRequest",
    "JobShard",
    "Joining",
    "Listening",
    "Network",
    "NodeActors",
    "ProcessAttributes",
    "ProcessIdentity",
    "RemoteLearner",
    "Submission",
    "Text",
    "VisibleDevices",
]

Share = Annotated[int, msgspec.Meta(ge=1, le=10_000)]
Amount = Annotated[int, msgspec.Meta(ge=1, le=1 << 40)]
Text = Annotated[str, msgspec.Meta(max_length=4096)]
Patience = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
MOST_INCARNATIONS: Final = 1 << 40
NODE_PATIENCE_S: Final = 45
"""How many seconds a node of a cluster waits for its learner by default; the cluster may set less."""


class ProcessIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """One process of this boot: its pid, and when it began in clock ticks since boot."""

    pid: Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]
    start: Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]


class ProcessAttributes(msgspec.Struct, frozen=True, kw_only=True):
    """What a process inherits beside its environment: `umask`, `nice` value, the `cpus` that it may run on.

    `limits` are resource limits by name, as in NOFILE: soft and hard, -1 for none (getrlimit(2)).
    """

    umask: Annotated[int, msgspec.Meta(ge=0, le=0o777)]
    nice: Annotated[int, msgspec.Meta(ge=-20, le=19)]
    cpus: Annotated[tuple[int, ...], msgspec.Meta(max_length=65536)]
    limits: Annotated[dict[str, tuple[int, int]], msgspec.Meta(max_length=100)]


class CommandRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What one command asks for; one amount is set, or none: all devices that the submission names, whole.

    `devices`: that many whole devices, 0 for none. `memory_mib`: a limit on one device. `fraction`: a part of what can
    be planned on one idle device, in 1/10 000; the context is taken from it, so that 2 x 0.5 fit. `processes`: the
    number of the command's that use a device at the same time, each with its context and an equal part of the limit.
    `first_mib`: where it is set, `memory_mib` is what earlier runs are measured to need, and this is asked for until
    that is known; 0: nothing is, and it is refused. `context_mib`: what one process takes on a device before it
    allocates anything, None where that is not known of this command. `measured`: what it used before.
    """

    devices: Annotated[int, msgspec.Meta(ge=0, le=1024)] | None = None
    memory_mib: Amount | None = None
    fraction: Share | None = None
    processes: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1
    first_mib: Annotated[int, msgspec.Meta(ge=0, le=1 << 40)] | None = None
    context_mib: Amount | None = None
    measured: MeasuredUse | None = None

    def context_or(self, usual_mib: int) -> int:
        """Return what one process takes on a device before it allocates anything, `usual_mib` where it is not known."""
        return usual_mib if self.context_mib is None else self.context_mib


class VisibleDevices(msgspec.Struct, frozen=True, kw_only=True):
    """A person's CUDA_VISIBLE_DEVICES. `by_bus`: CUDA_DEVICE_ORDER has CUDA count devices as gpusched does."""

    names: Text
    by_bus: bool = False

    @property
    def variable(self) -> str:
        """The variable and its value, for people."""
        return f"CUDA_VISIBLE_DEVICES={self.names!r}"


class Listening(msgspec.Struct, frozen=True, kw_only=True, tag="listening"):
    """A job whose learner takes actors of other hosts at `endpoint`, as in `tcp://0.0.0.0:5555`.

    `insecure`: without keys, on loopback only. `path` is its workload's file and `versions` what its programs are run
    with: both are for who joins to compare (see joining.Invitation). `incarnation`: of the learner's own node
    where the launch has other nodes, see Member; 0 where it has none.
    """

    endpoint: Text
    insecure: bool = False
    path: Text | None = None
    versions: dict[str, str] = {}
    incarnation: Annotated[int, msgspec.Meta(ge=0, le=MOST_INCARNATIONS)] = 0


class Joining(msgspec.Struct, frozen=True, kw_only=True, tag="joining"):
    """A job whose replicas are actors of the learner of `job` at `endpoint`, which calls them `actor.3@HOST`.

    `host` is that name, `first_rank` the rank of the first of them there. `key`: the file of the key that lets them in,
    None for a learner without keys. `patience_s`: how long they wait for a silent learner.
    """

    endpoint: Text
    job: Text
    host: Text
    first_rank: Annotated[int, msgspec.Meta(ge=0, le=1 << 40)] = 0
    key: Text | None = None
    patience_s: Patience = 900


class NodeActors(msgspec.Struct, frozen=True, kw_only=True, tag="member"):
    """A job whose replicas are actors of the launch `job` on a node other than its learner's, which is at `endpoint`.

    Their names and ranks are those of the whole launch. `incarnation` counts, from 1, the times that a cluster has
    started them, on whatever node: the learner accepts only the highest. `key` and `patience_s` as of Joining.
    """

    endpoint: Text
    job: Text
    incarnation: Annotated[int, msgspec.Meta(ge=1, le=MOST_INCARNATIONS)]
    key: Text | None = None
    patience_s: Patience = NODE_PATIENCE_S


RemoteLearner = Joining | NodeActors
"""A job whose learner is on another host."""


class ClusterJobRef(msgspec.Struct, frozen=True, kw_only=True, tag="spread"):
    """A job whose replicas run on the hosts of a cluster: what runs here only has to do with that `engine`."""

    engine: Text


Network = Listening | RemoteLearner | ClusterJobRef
"""How a job has to do with other hosts."""


class JobShard(msgspec.Struct, frozen=True, kw_only=True):
    """Which replicas of the `job` of several hosts one of them runs, each role's by its name.

    `first`: the rank of the first of them here; `counts`: how many there are on all hosts together. `attempt`: how
    often this part of the job was started before.
    """

    job: Text
    first: dict[str, int]
    counts: dict[str, int]
    attempt: int = 0


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """One job as it was asked for. Either `request` (a workload's roles) or `command` is what it needs.

    `maximise` names a role of the request whose number is to be the largest that fits. `options` are the workload's, as
    JSON. `policy` and `grow`: None for what is usual, see planner/policies.py. `visible` restricts it as `gpus`
    does. `only`: the uuids of the devices it may use, None for all; where it is empty, a workload has no device.
    `machine`: a described machine instead of this host. `environ` is the whole environment of the submitter,
    `python` and `xla_variable` what was true there. `after`: ids of jobs that must have succeeded before,
    `after_any`: of those that must have ended. `at` in Unix seconds. `time_limit_s` counts from the start.
    `launcher`: the process that starts the job when its turn has come, and that the job must not outlive; None: the
    daemon starts it. `requeue`: a job that was lost (a reboot) is queued again. `token`: drawn at random by the
    submitter, the same for each submission of the same job, whose answer may be lost; empty where it submits once.
    `network`: whether it takes actors of other hosts, or is such actors itself; None: it stays on one host.
    `attributes`: what its processes would have inherited of the submitter; None: of the process that starts them.
    `array`: it is an array, whose members differ from it in their parameters; `index`: it is a member, of that number,
    with those `parameters`. `owner`: the process of which an open array gets its members; it is stopped with that.
    `group`: the group of the queue that it counts in, None: in no group.
    `notify`: the command or URL that gets its events, beside those of the configuration.
    `idle_end_s`: it is ended once its devices have done nothing for so long; None: never for that.
    `ignore_foreign`: processes of no job that it is planned over, see planner/foreign.py.
    """

    workload: Workload
    request: Request | None = None
    command: CommandRequest | None = None
    maximise: Text | None = None
    options: bytes = b"{}"
    policy: Text | None = None
    grow: bool | None = None
    gpus: Text | None = None
    exclude_gpus: Text | None = None
    visible: VisibleDevices | None = None
    only: tuple[Text, ...] | None = None
    machine: Text | None = None
    cwd: Text
    environ: dict[str, str]
    python: Text
    xla_variable: Text
    name: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    group: GroupName | None = None
    priority: Annotated[int, msgspec.Meta(ge=-1_000_000, le=1_000_000)] = 0
    after: Annotated[tuple[Text, ...], msgspec.Meta(max_length=1000)] = ()
    after_any: Annotated[tuple[Text, ...], msgspec.Meta(max_length=1000)] = ()
    at: float | None = None
    time_limit_s: Annotated[float, msgspec.Meta(gt=0, le=1e9)] | None = None
    hold: bool = False
    requeue: bool = False
    launcher: ProcessIdentity | None = None
    network: Network | None = None
    token: Annotated[str, msgspec.Meta(max_length=64)] = ""
    attributes: ProcessAttributes | None = None
    array: Array | None = None
    index: Annotated[int, msgspec.Meta(ge=0)] | None = None
    parameters: dict[str, str] = {}
    owner: ProcessIdentity | None = None
    notify: Text | None = None
    idle_end_s: Annotated[float, msgspec.Meta(gt=0, le=1e9)] | None = None
    ignore_foreign: Text | None = None

    @property
    def typed(self) -> tuple[str, ...]:
        """The command as it was typed; () of a workload."""
        return self.workload.roles[0].command if self.command is not None and self.workload.roles else ()


class QueueChange(msgspec.Struct, frozen=True, kw_only=True):
    """What is changed of a submission in the queue, as there; UNSET: nothing.

    `command`: another amount for a command. The number of its processes stays, and which devices it may use. Without a
    device it has neither, and cannot get one again.
    """

    name: Annotated[str, msgspec.Meta(max_length=200)] | msgspec.UnsetType | None = msgspec.UNSET
    group: GroupName | msgspec.UnsetType | None = msgspec.UNSET
    priority: Annotated[int, msgspec.Meta(ge=-1_000_000, le=1_000_000)] | msgspec.UnsetType = msgspec.UNSET
    after: Annotated[tuple[Text, ...], msgspec.Meta(max_length=1000)] | msgspec.UnsetType = msgspec.UNSET
    after_any: Annotated[tuple[Text, ...], msgspec.Meta(max_length=1000)] | msgspec.UnsetType = msgspec.UNSET
    at: float | msgspec.UnsetType | None = msgspec.UNSET
    time_limit_s: Annotated[float, msgspec.Meta(gt=0, le=1e9)] | msgspec.UnsetType | None = msgspec.UNSET
    hold: bool | msgspec.UnsetType = msgspec.UNSET
    requeue: bool | msgspec.UnsetType = msgspec.UNSET
    notify: Text | msgspec.UnsetType | None = msgspec.UNSET
    idle_end_s: Annotated[float, msgspec.Meta(gt=0, le=1e9)] | msgspec.UnsetType | None = msgspec.UNSET
    command: CommandRequest | msgspec.UnsetType = msgspec.UNSET

    @property
    def is_of_members(self) -> bool:
        """Whether something is changed that an array has its members for: all but name, group and notification."""
        own = msgspec.structs.replace(self, name=msgspec.UNSET, group=msgspec.UNSET, notify=msgspec.UNSET)
        return own != QueueChange()

    def of(self, submission: Submission) -> Submission:
        """Return the submission with these changes. Raises UsageError for an amount that it cannot have."""
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        changes = {name: value for name, value in values.items() if value is not msgspec.UNSET}
        if self.command is not msgspec.UNSET:
            changes |= self._amount(self.command, submission)
        return msgspec.structs.replace(submission, **changes)

    def _amount(self, asked: CommandRequest, submission: Submission) -> dict[str, object]:
        before = submission.command
        if before is None:
            hint = "stop it, and launch it again with other options"
            raise UsageError(f"what {submission.workload.name} needs is that of its roles, and no single amount", hint)
        if before.devices == 0 and asked.devices != 0:
            hint = "stop it, and queue it with gpusched run -d"
            raise UsageError("it was queued without a device, so that it is not known which it may use", hint)
        if asked.devices == 0:
            idle_end_s = submission.idle_end_s if self.idle_end_s is msgspec.UNSET else self.idle_end_s
            if idle_end_s is not None:
                raise UsageError("--idle-end watches devices, and --num-gpus 0 is none", "add --idle-end none")
            return {"command": asked, "only": None, "gpus": None, "exclude_gpus": None, "ignore_foreign": None}
        if asked.memory_mib is not None and asked.memory_mib < before.processes:
            raise UsageError(f"--memory is less than 1 MiB for each of {before.processes} processes", "give more")
        return {"command": msgspec.structs.replace(asked, processes=before.processes), "only": None}
