"""How many engines a cluster has, and what each of them gets: the value object of `sensorium cluster`."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ConfigError
from .validation import check

MAX_ENGINES = 256


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The engines of a cluster.

    Attributes
    ----------
    address
        Ray cluster to use, HOST:PORT; auto: the one of this machine; local: one that starts here and ends
        with this command.
    min_replicas
        Engines that are kept running.
    max_replicas
        Most engines there may be.
    num_cpus
        Processors that Ray reserves for an engine; it computes with as many threads unless num_threads is
        given.
    num_gpus
        GPUs that Ray reserves for an engine; a fraction shares one.
    scale_up_queue_s
        Seconds; one engine is added when the 95th percentile of the time that requests waited in the last 30
        seconds is above it.
    scale_down_idle_s
        Seconds without a request after which an engine is drained and ended, down to min_replicas.
    lost_s
        Seconds after which an engine that no server can use is replaced.
    allow_unauthenticated_ray
        Use a Ray cluster without RAY_AUTH_MODE=token. Every program that reaches its ports can run
        code on it.
    """

    address: str = "auto"
    min_replicas: int = 1
    max_replicas: int = 1
    num_cpus: float = 1.0
    num_gpus: float = 0.0
    scale_up_queue_s: float = 0.5
    scale_down_idle_s: float = 300.0
    lost_s: float = 10.0
    allow_unauthenticated_ray: bool = False

    def __post_init__(self) -> None:
        check("min_replicas", self.min_replicas, 1, MAX_ENGINES)
        check("max_replicas", self.max_replicas, 1, MAX_ENGINES)
        if self.max_replicas < self.min_replicas:
            raise ConfigError(
                f"--max-replicas is {self.max_replicas} and --min-replicas {self.min_replicas}; "
                f"allowed: {self.min_replicas} or more"
            )
        check("num_cpus", self.num_cpus, 0)
        check("num_gpus", self.num_gpus, 0)
        check("scale_up_queue_s", self.scale_up_queue_s, 0)
        check("scale_down_idle_s", self.scale_down_idle_s, 1)
        check("lost_s", self.lost_s, 2)
