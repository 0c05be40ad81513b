#!/usr/bin/env python3
"""Runs every comparison in one go and writes report.json and report.md.

A row is measured many times, shortly, ours and its peers in turn, so that a slow moment of the
machine falls on all of them; the median counts. Usage: run.py BUILD_DIR OUT_DIR [ROUNDS]
"""
import json
import os
import shutil
import statistics
import subprocess
import sys

BUILD, OUT = sys.argv[1], sys.argv[2]
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 15
SECONDS = "0.3"


def program(name):
    return os.path.join(BUILD, "bin", name)


def perf(test, uri, size, depth=1):
    return [program("amalgam"), "perf", test, "--uri", uri, "--size", str(size),
            "--depth", str(depth), "--seconds", SECONDS, "--json"], {}


def raw_socket(test, size):
    return [program("bench_raw_socket"), test, str(size), SECONDS], {}


def shared_ring(size):
    return [program("bench_shared_ring"), str(size), SECONDS], {}


def ucx_am(transports, size):
    return [program("bench_ucx_am"), str(size), SECONDS], {"UCX_TLS": transports}


def open_mpi(fabric, size):
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return ["mpirun", *as_root, "-n", "2", "--bind-to", "core", "--mca", "btl", fabric + ",self",
            program("bench_open_mpi"), str(size), SECONDS], {}


def steady_state(what):
    return [program("bench_steady_state"), what], {}


def us(line):
    return 1e6 / line["ops_per_s"]


def rate(line):
    return line["ops_per_s"]


def value(line):
    return line["value"]


# What is measured: metric, unit, which way is better, how to read a line, ours, the peers that do
# the same job, what the hardware or the kernel alone can do, and the goal given those figures.
ROWS = [
    dict(metric="message round trip, shm, 8 B", unit="us", better="lower", read=us,
         ours=perf("message-latency", "shm://", 8),
         peers={"Open MPI vader": open_mpi("vader", 8), "UCX AM posix": ucx_am("posix,cma", 8)},
         limit=("hand-written ring", shared_ring(8)),
         goal=lambda row: max(0.15, row["peers"].get("Open MPI vader", 0.15))),
    dict(metric="message round trip, tcp, 8 B", unit="us", better="lower", read=us,
         ours=perf("message-latency", "tcp://127.0.0.1:0", 8),
         peers={"Open MPI tcp": open_mpi("tcp", 8), "UCX AM tcp": ucx_am("tcp", 8)},
         limit=("raw socket", raw_socket("latency", 8)),
         goal=None),
    dict(metric="typed RPC round trip, ULT handler, shm", unit="us", better="lower", read=us,
         ours=perf("rpc-latency", "shm://", 8),
         peers={"UCX AM posix (no RPC)": ucx_am("posix,cma", 8)},
         limit=("hand-written ring", shared_ring(8)),
         goal=lambda row: 0.35),
    dict(metric="typed RPC round trip, ULT handler, tcp", unit="us", better="lower", read=us,
         ours=perf("rpc-latency", "tcp://127.0.0.1:0", 8),
         peers={"UCX AM tcp (no RPC)": ucx_am("tcp", 8)},
         limit=("raw socket", raw_socket("latency", 8)),
         goal=lambda row: 1.15 * row["limit"]),
    dict(metric="RPC rate, shm, 64 B, 16 in flight", unit="calls/s", better="higher", read=rate,
         ours=perf("rpc-rate", "shm://", 64, 16), peers={}, limit=None, goal=None),
    dict(metric="RPC rate, tcp, 64 B, 64 in flight", unit="calls/s", better="higher", read=rate,
         ours=perf("rpc-rate", "tcp://127.0.0.1:0", 64, 64), peers={}, limit=None, goal=None),
    dict(metric="get 1 MiB, shm", unit="GiB/s", better="higher",
         read=lambda line: line["bytes_per_s"] / 2**30,
         ours=perf("get-bandwidth", "shm://", 1 << 20, 4), peers={}, limit=None, goal=None),
    dict(metric="get 1 MiB, tcp", unit="GiB/s", better="higher",
         read=lambda line: line["bytes_per_s"] / 2**30,
         ours=perf("get-bandwidth", "tcp://127.0.0.1:0", 1 << 20, 4), peers={},
         limit=("raw socket", raw_socket("stream", 64)), goal=None),
    dict(metric="stream of 64 B items, shm", unit="items/s", better="higher", read=rate,
         ours=perf("stream-rate", "shm://", 64), peers={}, limit=None, goal=lambda row: 5e6),
    dict(metric="stream of 64 B items, tcp", unit="items/s", better="higher", read=rate,
         ours=perf("stream-rate", "tcp://127.0.0.1:0", 64), peers={},
         limit=("raw socket, 64 KiB writes", raw_socket("stream", 64)), goal=lambda row: 3e6),
    dict(metric="allocations per message, shm", unit="1", better="lower", read=value,
         ours=steady_state("message-shm"), peers={}, limit=None, goal=lambda row: 0, once=True),
    dict(metric="allocations per message, tcp", unit="1", better="lower", read=value,
         ours=steady_state("message-tcp"), peers={}, limit=None, goal=lambda row: 0, once=True),
    dict(metric="allocations per call, shm", unit="1", better="lower", read=value,
         ours=steady_state("rpc-shm"), peers={}, limit=None, goal=lambda row: 0, once=True),
    dict(metric="allocations per call, tcp", unit="1", better="lower", read=value,
         ours=steady_state("rpc-tcp"), peers={}, limit=None, goal=lambda row: 0, once=True),
    # The resolution of the kernel's CPU accounting over the 2 s that are watched.
    dict(metric="CPU of an idle engine (shm and tcp)", unit="%", better="lower", read=value,
         ours=steady_state("idle-cpu"), peers={}, limit=None, goal=lambda row: 0.1, once=True),
]


def run(command, read):
    """One figure, or None with a line on stderr."""
    words, environment = command
    if shutil.which(words[0]) is None:
        print(f"  left out: {os.path.basename(words[0])} is not here", file=sys.stderr)
        return None
    try:
        done = subprocess.run(words, env={**os.environ, **environment}, timeout=120, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return read(json.loads(done.stdout.strip().splitlines()[-1]))
    except (subprocess.TimeoutExpired, ValueError, IndexError, KeyError) as e:
        print(f"  {' '.join(words)}: {type(e).__name__}", file=sys.stderr)
        return None


def median(samples):
    samples = [s for s in samples if s is not None]
    return statistics.median(samples) if samples else None


def measure(row):
    commands = {"ours": row["ours"]}
    commands.update({("peer", name): c for name, c in row["peers"].items()})
    if row["limit"]:
        commands["limit"] = row["limit"][1]
    samples = {key: [] for key in commands}
    for _ in range(1 if row.get("once") else ROUNDS):
        for key, command in commands.items():
            samples[key].append(run(command, row["read"]))
    ours = median(samples["ours"])
    peers = {key[1]: median(s) for key, s in samples.items() if isinstance(key, tuple)}
    peers = {name: v for name, v in peers.items() if v is not None}
    limit = median(samples["limit"]) if "limit" in samples else None
    pick = min if row["better"] == "lower" else max
    best = pick(peers, key=peers.get) if peers else None
    goal = row["goal"]({"peers": peers, "limit": limit}) if row["goal"] else None
    met = None
    if ours is not None and goal is not None:
        met = ours <= goal if row["better"] == "lower" else ours >= goal
    against = peers[best] if best else limit
    return {"metric": row["metric"], "unit": row["unit"], "better": row["better"], "ours": ours,
            "peer": best or "", "peer_value": peers.get(best), "limit": (row["limit"] or ("",))[0],
            "limit_value": limit, "ratio": ours / against if ours is not None and against else None,
            "goal": goal, "met": met, "peers": peers,
            "ours_all_rounds": [s for s in samples["ours"] if s is not None]}


def show(number):
    if number is None:
        return "-"
    if number >= 1e6:
        return f"{number / 1e6:.2f} M"
    if number >= 1e4:
        return f"{number / 1e3:.1f} k"
    return f"{number:.3g}"


def markdown(rows):
    lines = ["# Benchmarks", "",
             f"Ours and each peer in one run, processes pinned to a processor each, median of "
             f"{ROUNDS} rounds. *Ratio* is ours over the best peer, or over the limit where there "
             f"is no peer; *limit* is the hardware or the kernel alone.", "",
             "| metric | unit | better | ours | best peer | limit | ratio | goal | met |",
             "|---|---|---|---|---|---|---|---|---|"]
    for r in rows:
        peer = f"{show(r['peer_value'])} ({r['peer']})" if r["peer"] else "-"
        limit = f"{show(r['limit_value'])} ({r['limit']})" if r["limit"] else "-"
        met = {True: "yes", False: "**no**", None: "-"}[r["met"]]
        lines.append(f"| {r['metric']} | {r['unit']} | {r['better']} | {show(r['ours'])} | {peer} "
                     f"| {limit} | {show(r['ratio'])} | {show(r['goal'])} | {met} |")
    return "\n".join(lines) + "\n"


def main():
    os.makedirs(OUT, exist_ok=True)
    rows = []
    for number, row in enumerate(ROWS, 1):
        print(f"[{number}/{len(ROWS)}] {row['metric']}", flush=True)
        rows.append(measure(row))
        with open(os.path.join(OUT, "report.json"), "w") as file:
            json.dump(rows, file, indent=2)
    text = markdown(rows)
    with open(os.path.join(OUT, "report.md"), "w") as file:
        file.write(text)
    print("\n" + text)
    failed = [r["metric"] for r in rows if r["ours"] is None]
    if failed:
        print("not measured: " + "; ".join(failed), file=sys.stderr)
        return 1
    return 0


sys.exit(main())
