"""What a gateway counts, in Prometheus' text format: `sensorium_gateway_…` names, most of them by server."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from ...protocols.engine.histograms import SECONDS


class GatewayMetrics:
    """All counters of one gateway."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self.registry)
        counter = partial(Counter, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        self.requests = counter(
            "sensorium_gateway_requests",
            "HTTP requests answered; server: empty where none was asked",
            ["server", "status"],
        )
        self.first_byte = Histogram(
            "sensorium_gateway_first_byte_seconds",
            "A request's last byte sent to a server to the first of its answer",
            ["server"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.retries = counter(
            "sensorium_gateway_retries",
            "Times another server was asked before an answer began",
            ["server", "reason"],
        )
        self.broken = counter(
            "sensorium_gateway_answers_broken", "Answers that their server broke off midway", ["server"]
        )
        self.shed = counter(
            "sensorium_gateway_shed", "Requests and WebSockets refused without asking a server", ["reason"]
        )
        self.affinity = counter(
            "sensorium_gateway_affinity",
            "Requests that belong to a server: they went there (kept), or to another one (moved)",
            ["kind", "outcome"],
        )
        self.sessions = counter(
            "sensorium_gateway_sessions",
            "WebSockets ended, by the code the client was closed with",
            ["server", "code"],
        )
        self.resumed = counter(
            "sensorium_gateway_sessions_resumed",
            "Times a client went on with a session on its server",
            ["server"],
        )
        self.open = gauge("sensorium_gateway_open", "Requests and WebSockets in hand", ["server"])
        self.open_sessions = gauge("sensorium_gateway_sessions_open", "Of them, WebSockets", ["server"])
        self.up = gauge("sensorium_gateway_server_up", "Whether a server takes work", ["server"])
        self.draining = gauge(
            "sensorium_gateway_server_draining", "Whether a server is being drained", ["server"]
        )

    def text(self) -> bytes:
        """The exposition."""
        return generate_latest(self.registry)
