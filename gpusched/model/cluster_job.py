"""A job on several hosts of a cluster: what each of them runs, and their messages. Values only."""

from typing import Annotated

import msgspec

from gpusched.model.job import NODE_PATIENCE_S, Text
from gpusched.model.status import JobStatus
from gpusched.model.workload import Workload

__all__ = [
    "ClusterJob",
    "LogPart",
    "NodeMessage",
    "NodeOrder",
    "NodeShare",
    "NodeStatus",
    "Own",
    "ProgressLine",
    "Refused",
]

Whole = Annotated[int, msgspec.Meta(ge=0, le=1 << 31)]

Own = dict[Text, tuple[Text, ...]]
"""Options that belong to one engine, by name: `{"site": ("--partition=gpu",)}`."""


class NodeShare(msgspec.Struct, frozen=True, kw_only=True):
    """What one node runs: `counts[role]` replicas of each role, with ranks from `first[role]` on."""

    counts: dict[str, int]
    first: dict[str, int]


class ClusterJob(msgspec.Struct, frozen=True, kw_only=True):
    """A workload under its `options` (JSON), spread over `nodes`; the first of them has the learner.

    Each node takes `gpus` whole devices, 0 for none, and `cpus` CPUs, None for what the cluster gives by itself.
    `learner_memory`, `actor_memory`, `policy` and `grow` are what was typed, for the plan that each node makes of its
    share. `own`: the engine's own options.
    `patience_s`: a node ends its actors when the learner is silent to them for that long, before the cluster gives the
    node up. `python` and `cwd` are those of the submitting process, and must be found on each node.
    """

    engine: Text
    workload: Workload
    options: str
    nodes: tuple[NodeShare, ...]
    gpus: Whole = 0
    cpus: Whole | None = None
    learner_memory: Text | None = None
    actor_memory: Text | None = None
    policy: Text | None = None
    grow: bool | None = None
    own: Own = {}
    patience_s: Annotated[int, msgspec.Meta(ge=1, le=86_400)] = NODE_PATIENCE_S
    python: Text
    cwd: Text

    @property
    def only_elsewhere(self) -> tuple[frozenset[int], ...]:
        """The nodes of each role that the first node lacks: where they all have failed its leader would never begin."""
        lacks = (role for role, count in self.counts.items() if count and not self.nodes[0].counts.get(role))
        return tuple(
            frozenset(number for number, node in enumerate(self.nodes) if node.counts.get(role)) for role in lacks
        )

    @property
    def counts(self) -> dict[str, int]:
        """How many replicas of each role there are on all nodes together."""
        return {role: sum(node.counts.get(role, 0) for node in self.nodes) for role in self.nodes[0].counts}


class NodeOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The order for a node on its standard input, once: its `number` among the group's nodes, and the `job`.

    `directory`: the job's on the host that submitted it. `learner`: the endpoint at which the learner listens.
    `incarnation`: that of the attempt of the whole group (steps.PER_ATTEMPT); the node adds its own. `keys`: files of
    keys by name, with what they hold: it is why this travels on a pipe.
    """

    group: ClusterJob
    job: Text
    directory: Text
    number: Whole
    learner: Text
    incarnation: Whole
    keys: dict[str, str]

    def __repr__(self) -> str:
        return f"NodeOrder(job={self.job!r}, number={self.number})"


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True, tag="status"):
    """A node's part of the job as its supervisor shows it, the job's name and place being those of the part.

    `unheard`: it has ended because the learner was silent, or because other actors have the places of its actors.
    """

    host: Text
    status: JobStatus
    unheard: bool = False


class LogPart(msgspec.Struct, frozen=True, kw_only=True, tag="log"):
    """What a replica has written since the last time. Bytes that are no UTF-8 are replaced."""

    replica: Text
    text: str


class ProgressLine(msgspec.Struct, frozen=True, kw_only=True, tag="progress"):
    """A line of what the leader reports."""

    line: str


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """The node cannot do its part, and why, for people."""

    message: str = msgspec.field(name="words")
    yet: bool = False
    """It may be able to later."""


NodeMessage = NodeStatus | LogPart | ProgressLine | Refused
"""A message of a node on its standard output, as JSON, a line each."""
