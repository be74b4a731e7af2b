"""The result of a run: as text for people, as JSON for programs."""

import json
from pathlib import Path
from typing import Any, Final

from soak.measures import Measures, percentile
from soak.oracle import Oracle
from soak.servers import Servers
from soak.topics import JAVA, OURS

MEMORY_BUDGET_MIB: Final = 256
DESCRIPTOR_BUDGET: Final = 512


def check_budgets(measures: Measures, oracle: Oracle) -> None:
    """Note where the broker used more than it may."""
    for one in measures.samples["broker"]:
        if one.own_mib > MEMORY_BUDGET_MIB:
            oracle.broken("memory over its budget", f"{one.own_mib:.0f} MiB at {one.second:.0f} s")
        if one.descriptor_count > DESCRIPTOR_BUDGET:
            text = f"{one.descriptor_count} at {one.second:.0f} s"
            oracle.broken("descriptors over their budget", text)


def summary(
    measures: Measures, oracle: Oracle, servers: Servers, *, about: dict[str, Any]
) -> dict[str, Any]:
    """Return what a run has shown."""
    faults: dict[str, int] = {}
    for fault in measures.faults:
        faults[fault.kind] = faults.get(fault.kind, 0) + 1
    broker = measures.samples["broker"]
    starts = sorted(servers.broker.start_seconds)
    return {
        **about,
        "seconds": round(measures.now(), 1),
        "faults": faults,
        "counts": dict(oracle.counts),
        "memory": {
            "budget MiB": MEMORY_BUDGET_MIB,
            "worst MiB": round(max((one.own_mib for one in broker), default=0), 1),
            "last MiB": round(broker[-1].own_mib, 1) if broker else 0,
        },
        "descriptors": {
            "budget": DESCRIPTOR_BUDGET,
            "worst": max((one.descriptor_count for one in broker), default=0),
            "last": broker[-1].descriptor_count if broker else 0,
        },
        "latency ms": {who: _latency(measures.all_times(who)) for who in (OURS, JAVA)},
        "starts of the broker": {
            "count": len(starts),
            "median s": round(percentile(starts, 0.5), 2),
            "worst s": round(starts[-1], 2) if starts else 0,
        },
        "violations": dict(oracle.violations),
        "examples": dict(oracle.examples),
    }


def _latency(ascending: list[float]) -> dict[str, float]:
    named = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "worst": 1.0}
    return {name: round(percentile(ascending, share), 2) for name, share in named.items()}


def write_json(path: Path, found: dict[str, Any], measures: Measures) -> None:
    """Write the summary with everything that was measured."""
    everything = {
        **found,
        "fault list": [fault._asdict() for fault in measures.faults],
        "latencies": {
            who: [one._asdict() for one in measures.latencies(who)] for who in (OURS, JAVA)
        },
        "samples": {
            name: [[round(value, 1) for value in one] for one in samples]
            for name, samples in measures.samples.items()
        },
    }
    path.write_text(json.dumps(everything, indent=1) + "\n")


def as_text(found: dict[str, Any]) -> str:
    """Return the summary for people."""
    lines = []
    for name, value in found.items():
        if name == "examples":
            continue
        shown = value
        if isinstance(value, dict):
            shown = ", ".join(f"{key}: {one}" for key, one in value.items()) or "none"
        lines.append(f"{name + ':':22} {shown}")
    for kind, texts in found["examples"].items():
        lines.append(f"\n{kind}: {found['violations'][kind]}")
        lines += [f"    {text}" for text in texts]
    return "\n".join(lines)
