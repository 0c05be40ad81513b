"""What is measured. A command is the words to run, and what to add to its environment."""
import os

SECONDS = "0.3"
# Loops of a few nanoseconds need no longer, and there are many of them.
TASK_SECONDS = "0.1"
TASK_PEERS = {"boost_fiber": "Boost.Fiber", "one_tbb": "oneTBB", "argobots": "Argobots",
              "std_thread": "std::thread", "fastflow_parallel": "FastFlow"}
COUNT_INSTRUCTIONS = os.path.join(os.path.dirname(os.path.realpath(__file__)), "count_instructions")


def perf(test, uri, size, depth=1, seconds=SECONDS):
    return ["amalgam", "perf", test, "--uri", uri, "--size", str(size),
            "--depth", str(depth), "--seconds", seconds, "--json"], {}


def raw_socket(test, size, seconds=SECONDS):
    return ["bench_raw_socket", test, str(size), seconds], {}


# A stream is measured once its batches have been in the caches and its memory was touched.
def stream(uri, size):
    return perf("stream-rate", uri, size, seconds="1")


def raw_stream(size):
    return raw_socket("stream", size, seconds="1")


def shared_ring(size):
    return ["bench_shared_ring", str(size), SECONDS], {}


def bare(library, test, over, size, depth=1, delivered=False):
    """A program of benches/peers, which `amalgam perf --vs` runs, too."""
    return ["amalgam-peer-" + library, test, over, str(size), str(depth), SECONDS,
            *(["delivered"] if delivered else [])], {}


def bare_transfers(library, name, way, over, size):
    """A put is over at handover, or, as ours, once its bytes are at the target."""
    test = f"{way}-bandwidth"
    if way == "get":
        return {name: bare(library, test, over, size)}
    return {f"{name}, delivered": bare(library, test, over, size, delivered=True),
            f"{name}, handed over": bare(library, test, over, size)}


def directory(test, uri):
    return ["bench_directory", test, uri, SECONDS], {}


def inject(test, uri):
    return ["bench_inject", test, uri, SECONDS], {}


def inject_row(what, test, over, better, goal):
    """Measured beside one-way calls, in turn with them."""
    uri = "shm://" if over == "shm" else "tcp://127.0.0.1:0"
    return dict(metric=f"injected code over one-way call: {what}, {over}", unit="times",
                better=better, read=value, ours=inject(test, uri), peers={}, limit=None,
                goal=lambda row: goal)


def raw_memory(way, size):
    return ["bench_raw_memory", way, str(size), SECONDS], {}


def grpc(wait, over, size, depth=1):
    return ["bench_grpc", wait, over, str(size), str(depth), SECONDS], {}


def both_grpc(over, size, depth=1):
    """Which of its two ways to wait is its best depends on the machine."""
    return {"gRPC polling": grpc("poll", over, size, depth),
            "gRPC": grpc("sleep", over, size, depth)}


def mercury_and_thallium(test, protocol, size, depth=1):
    """Mercury has callbacks, Thallium ULTs on top of it; they answer the same questions."""
    asked = [test, protocol, str(size), str(depth), SECONDS]
    return {f"Mercury {protocol}, no ULT": (["bench_mercury", *asked], {}),
            f"Thallium {protocol}": (["bench_thallium", *asked], {})}


def steady_state(what):
    return ["bench_steady_state", what], {}


def many_clients(transport):
    return ["bench_many_clients", transport, "worst-over-best"], {}


def pipelined_write(transport):
    return ["bench_pipelined_write", transport], {}


def first_answer(over):
    return ["bench_first_answer", over], {}


def plug_in_row(over, library, program):
    """What the library takes to load, to open a device and to close it is told apart, beside it."""
    return dict(metric=f"from the start of a program to its first answer and its end, {over}",
                unit="ms", better="lower", read=value, ours=first_answer(over), peers={},
                limit=(f"{library}'s own start and end", ([program], {})),
                goal=lambda row: row["limit"] + 1.5 if row["limit"] else None)


def tls(*words):
    return ["bench_tls", *words], {}


def raw_tls(test, size):
    return ["bench_raw_tls", test, str(size), SECONDS], {}


def perf_tls(test, size, depth=1, over="tcp+tls"):
    words, environment = perf(test, over + "://127.0.0.1:0?credentials=bench", size, depth)
    return ["bench_tls", *words[1:]], environment


def flow(what):
    return ["bench_flow", what], {}


def flow_peers(what):
    """FastFlow has a thread for each node: no thousand stages."""
    peers = {"oneTBB": (["bench_one_tbb", "flow-" + what], {})}
    if not what.startswith("stages"):
        peers["FastFlow"] = (["bench_fastflow", "flow-" + what], {})
    return peers


# Where its threads wait and run decides FastFlow's speed: its best of these counts.
FASTFLOW_MODES = {"FastFlow": [], "FastFlow blocking": ["blocking"],
                  "FastFlow unpinned": ["unmapped"],
                  "FastFlow blocking, unpinned": ["blocking", "unmapped"]}


def fastflow_row(metric, ours, peers, factor=1, **more):
    """A program of FastFlow's, compiled twice: on compat/fastflow and on FastFlow."""
    def goal(row):
        return factor * max(row["peers"].values()) if row["peers"] else None
    return dict(dict(metric=f"FastFlow program: {metric}", section="FastFlow programs",
                     unit="items/s", better="higher", read=value, limit=None, goal=goal,
                     ours=(ours, {}), peers={name: (words, {}) for name, words in peers.items()}),
                **more)


def fastflow_graph(metric, program, factor=1):
    peers = {name: ["bench_ff_theirs", program, *mode] for name, mode in FASTFLOW_MODES.items()}
    return fastflow_row(metric, ["bench_ff_ours", program], peers, factor)


def fastflow_loop(metric, program):
    """Has no modes; in milliseconds."""
    return fastflow_row(metric, ["bench_ff_ours", program],
                        {"FastFlow": ["bench_ff_theirs", program]}, unit="ms", better="lower")


def fastflow_groups(metric, over, size, factor=1, batch=1, **more):
    """Two groups of one program on this host. FastFlow has TCP only."""
    asked = [str(size), str(batch)]
    return fastflow_row(f"two groups, {metric}", ["bench_ff_groups_ours", over, *asked],
                        {"FastFlow TCP": ["bench_ff_groups_theirs", "TCP", *asked]}, factor,
                        read=rate, **more)


def tasks(program, question, seconds=TASK_SECONDS):
    return ["bench_" + program, question, seconds], {}


def instructions(program, question):
    return [COUNT_INSTRUCTIONS, "bench_" + program, question], {}


def within(figure):
    """A goal of so many nanoseconds, or of half what Argobots takes, where that is more."""
    return lambda row: max(figure, row["peers"].get("Argobots", 0) / 2)


def below(figure, part, limit):
    """A goal of so much, or of that part of the limit, where that is less."""
    return figure if limit is None else min(figure, part * limit)


def us(line):
    return 1e6 / line["ops_per_s"]


def rate(line):
    return line["ops_per_s"]


def gib(line):
    return line["bytes_per_s"] / 2**30


def value(line):
    return line["value"]


def one_copy_row(way, size, size_bytes):
    """Between two processes of one host, whose library may copy from memory to memory."""
    peers = bare_transfers("ucx", f"UCX {way} cma", way, "shm", size_bytes)
    return dict(metric=f"{way} {size}, ucx+shm, private memory", unit="GiB/s", better="higher",
                read=gib, ours=perf(f"{way}-bandwidth", "ucx+shm://127.0.0.1:0", size_bytes),
                peers=peers, alike=next(iter(peers)),
                limit=("cross-memory attach", raw_memory("cross", size_bytes)),
                goal=lambda row: 0.95 * row["peers"].get(next(iter(peers)), 0))


def libfabric_row(way, size, size_bytes, transfers):
    """Between two processes of one host: in packets, by libfabric's operations, or by the kernel."""
    over = "shm" if transfers == "host" else "tcp"
    peers = bare_transfers("ofi", f"libfabric {way} {over}", way, over, size_bytes)
    limit = ("cross-memory attach", raw_memory("cross", size_bytes)) if transfers == "host" else \
        ("raw socket", raw_socket("stream", 64))
    uri = f"ofi+tcp://127.0.0.1:0?one_sided={transfers}"
    return dict(metric=f"{way} {size}, ofi+tcp?one_sided={transfers}", unit="GiB/s",
                better="higher", read=gib, ours=perf(f"{way}-bandwidth", uri, size_bytes),
                peers=peers, alike=next(iter(peers)), limit=limit,
                goal=lambda row: 0.95 * row["peers"].get(next(iter(peers)), 0))


def long_message_row(size, size_bytes):
    peers = {"Open MPI vader": bare("mpi", "message-latency", "shm", size_bytes),
             "UCX AM posix": bare("ucx", "message-latency", "shm", size_bytes)}
    return dict(metric=f"message round trip, shm, {size}", unit="us", better="lower", read=us,
                ours=perf("message-latency", "shm://", size_bytes), peers=peers,
                limit=None, goal=lambda row: min(row["peers"].values(), default=None))


def task_row(metric, question, peers, goal, **more):
    """A row of the programs that answer the same questions, in nanoseconds unless told."""
    how = more.pop("how", tasks)
    return dict(dict(metric=metric, unit="ns", better="lower", read=value, limit=None, goal=goal,
                     ours=how("tasks", question),
                     peers={TASK_PEERS[name]: how(name, question) for name in peers.split()}),
                **more)


def long_tasks(program, question):
    return tasks(program, question, SECONDS)


def count_row(metric, question, peers):
    return task_row(f"instructions: {metric}", question, peers, None, how=instructions,
                    unit="instructions", once=True)


def call_row(metric, question, most, program="calls"):
    """Both ends in one thread, over shared memory."""
    return dict(metric=f"instructions: {metric}", unit="instructions", better="lower", read=value,
                ours=instructions(program, question), peers={}, limit=None,
                goal=lambda row: most, once=True)


# What is measured: metric, unit, which way is better, how to read a line, ours, the peers that do
# the same job, what the hardware or the kernel alone can do, and the goal given those figures.
ROWS = [
    dict(metric="message round trip, shm, 8 B", unit="us", better="lower", read=us,
         ours=perf("message-latency", "shm://", 8),
         peers={"Open MPI vader": bare("mpi", "message-latency", "shm", 8),
                "UCX AM posix": bare("ucx", "message-latency", "shm", 8)},
         limit=("hand-written ring", shared_ring(8)),
         goal=lambda row: max(0.15, row["peers"].get("Open MPI vader", 0.15))),
    dict(metric="message round trip, tcp, 8 B", unit="us", better="lower", read=us,
         ours=perf("message-latency", "tcp://127.0.0.1:0", 8),
         peers={"Open MPI tcp": bare("mpi", "message-latency", "tcp", 8),
                "UCX AM tcp": bare("ucx", "message-latency", "tcp", 8)},
         limit=("raw socket", raw_socket("latency", 8)),
         goal=None),
    long_message_row("64 KiB", 1 << 16),
    long_message_row("256 KiB", 1 << 18),
    # The limits here are the same without TLS, and the cipher alone.
    dict(metric="message round trip, tcp+tls, 8 B", unit="us", better="lower", read=us,
         ours=perf_tls("message-latency", 8), peers={"bare OpenSSL": raw_tls("latency", 8)},
         limit=("tcp, 8 B", perf("message-latency", "tcp://127.0.0.1:0", 8)),
         goal=lambda row: 1.25 * row["limit"] if row["limit"] else None),
    dict(metric="typed RPC round trip, ULT handler, tcp+tls", unit="us", better="lower", read=us,
         ours=perf_tls("rpc-latency", 8), peers=both_grpc("tls", 8),
         limit=("tcp+tls, 8 B", perf_tls("message-latency", 8)), goal=None),
    dict(metric="RPC rate, tcp+tls, 64 B, 64 in flight", unit="calls/s", better="higher",
         read=rate, ours=perf_tls("rpc-rate", 64, 64), peers=both_grpc("tls", 64, 64),
         limit=None, goal=None),
    dict(metric="get 1 MiB, tcp+tls, 4 in flight", unit="GiB/s", better="higher", read=gib,
         ours=perf_tls("get-bandwidth", 1 << 20, 4), peers={},
         limit=("AES-128-GCM on one core", tls("cipher", SECONDS)),
         goal=lambda row: 0.8 * row["limit"] if row["limit"] else None),
    dict(metric="put 1 MiB, tcp+tls, 4 in flight", unit="GiB/s", better="higher", read=gib,
         ours=perf_tls("put-bandwidth", 1 << 20, 4),
         peers={"bare OpenSSL": raw_tls("stream", 1 << 16)},
         limit=("tcp", perf("put-bandwidth", "tcp://127.0.0.1:0", 1 << 20, 4)),
         goal=lambda row: 0.8 * row["peers"].get("bare OpenSSL", 0) or None),
    dict(metric="message round trip, ofi+tcp+tls, 8 B", unit="us", better="lower", read=us,
         ours=perf_tls("message-latency", 8, over="ofi+tcp+tls"), peers={},
         limit=("ofi+tcp, 8 B", perf("message-latency", "ofi+tcp://127.0.0.1:0", 8)),
         goal=lambda row: 1.25 * row["limit"] if row["limit"] else None),
    dict(metric="get 1 MiB, ofi+tcp+tls, 4 in flight", unit="GiB/s", better="higher", read=gib,
         ours=perf_tls("get-bandwidth", 1 << 20, 4, over="ofi+tcp+tls"), peers={},
         limit=("ofi+tcp", perf("get-bandwidth", "ofi+tcp://127.0.0.1:0", 1 << 20, 4)), goal=None),
    dict(metric="from lookup to first message, tcp+tls, resumed", unit="ms", better="lower",
         read=value, ours=tls("resumed", SECONDS), peers={}, limit=None, goal=lambda row: 0.5),
    dict(metric="typed RPC round trip, ULT handler, shm", unit="us", better="lower", read=us,
         ours=perf("rpc-latency", "shm://", 8),
         peers={"UCX AM posix (no RPC)": bare("ucx", "message-latency", "shm", 8),
                **both_grpc("unix", 8),
                **mercury_and_thallium("latency", "na+sm", 8)},
         limit=("hand-written ring", shared_ring(8)),
         goal=lambda row: 0.25),
    dict(metric="typed RPC round trip, ULT handler, tcp", unit="us", better="lower", read=us,
         ours=perf("rpc-latency", "tcp://127.0.0.1:0", 8),
         peers={"UCX AM tcp (no RPC)": bare("ucx", "message-latency", "tcp", 8),
                **both_grpc("tcp", 8),
                **mercury_and_thallium("latency", "ofi+tcp", 8)},
         limit=("raw socket", raw_socket("latency", 8)),
         goal=lambda row: 1.1 * row["limit"] if row["limit"] else None),
    # A plain thread waits apart from the engine that brings its answer, as gRPC's callers do.
    dict(metric="typed RPC round trip by a plain thread, ULT handler, shm, 8 B", unit="us",
         better="lower", read=us, ours=(["bench_thread_call", "8", SECONDS], {}),
         peers=both_grpc("unix", 8),
         limit=("by a ULT of an engine that polls", perf("rpc-latency", "shm://", 8)), goal=None),
    dict(metric="RPC rate, shm, 64 B, 16 in flight", unit="calls/s", better="higher", read=rate,
         ours=perf("rpc-rate", "shm://", 64, 16),
         peers={**both_grpc("unix", 64, 16),
                **mercury_and_thallium("rate", "na+sm", 64, 16)},
         limit=None, goal=lambda row: 8e6),
    dict(metric="RPC rate, tcp, 64 B, 64 in flight", unit="calls/s", better="higher", read=rate,
         ours=perf("rpc-rate", "tcp://127.0.0.1:0", 64, 64),
         peers={**both_grpc("tcp", 64, 64),
                **mercury_and_thallium("rate", "ofi+tcp", 64, 64)},
         limit=None, goal=lambda row: 1.5e6),
    dict(metric="one-way calls, inline handler, shm, 8 B", unit="calls/s", better="higher",
         read=rate, ours=perf("post-rate", "shm://", 8, 256),
         peers={"UCX AM posix (no RPC)": bare("ucx", "message-rate", "shm", 8, 256)},
         limit=None, goal=lambda row: 20e6),
    dict(metric="server throughput, 1 to 64 clients, worst over best, shm", unit="times",
         better="higher", read=value, ours=many_clients("shm"), peers={}, limit=None,
         goal=lambda row: 0.85, once=True),
    dict(metric="server throughput, 1 to 64 clients, worst over best, tcp", unit="times",
         better="higher", read=value, ours=many_clients("tcp"), peers={}, limit=None,
         goal=lambda row: 0.85, once=True),
    dict(metric="get 1 MiB, shm, private memory", unit="GiB/s", better="higher", read=gib,
         ours=perf("get-bandwidth", "shm://", 1 << 20),
         peers={"UCX get cma": bare("ucx", "get-bandwidth", "shm", 1 << 20)},
         limit=("cross-memory attach", raw_memory("cross", 1 << 20)),
         goal=lambda row: below(13, 0.97, row["limit"])),
    one_copy_row("get", "64 KiB", 1 << 16),
    one_copy_row("get", "1 MiB", 1 << 20),
    one_copy_row("put", "64 KiB", 1 << 16),
    one_copy_row("put", "1 MiB", 1 << 20),
    *(libfabric_row(way, size, size_bytes, transfers)
      for transfers in ("no", "any", "host") for way in ("get", "put")
      for size, size_bytes in (("64 KiB", 1 << 16), ("1 MiB", 1 << 20))),
    dict(metric="get 1 MiB, shm, allocated blocks", unit="GiB/s", better="higher", read=gib,
         ours=perf("get-block-bandwidth", "shm://", 1 << 20),
         peers={"UCX get posix": bare("ucx", "get-block-bandwidth", "shm", 1 << 20)},
         limit=("memcpy", raw_memory("copy", 1 << 20)),
         goal=lambda row: below(50, 0.95, row["limit"])),
    dict(metric="get 1 MiB, tcp, 4 in flight", unit="GiB/s", better="higher", read=gib,
         ours=perf("get-bandwidth", "tcp://127.0.0.1:0", 1 << 20, 4),
         peers={"UCX get tcp": bare("ucx", "get-bandwidth", "tcp", 1 << 20, 4)},
         limit=("raw socket", raw_socket("stream", 64)),
         goal=lambda row: min(6.6, row["peers"].get("UCX get tcp", 6.6))),
    dict(metric="bulk pull 1 MiB, shm, private memory, 4 in flight", unit="GiB/s", better="higher",
         read=gib,
         ours=perf("bulk-pull", "shm://", 1 << 20, 4),
         peers={"UCX get cma": bare("ucx", "get-bandwidth", "shm", 1 << 20, 4),
                **mercury_and_thallium("bulk", "na+sm", 1 << 20, 4)},
         limit=("cross-memory attach", raw_memory("cross", 1 << 20)),
         goal=lambda row: below(13, 0.97, row["limit"])),
    dict(metric="bulk pull 1 MiB, shm, pooled memory, 4 in flight", unit="GiB/s", better="higher",
         read=gib,
         ours=perf("bulk-pull-pooled", "shm://", 1 << 20, 4),
         peers={"UCX get posix": bare("ucx", "get-block-bandwidth", "shm", 1 << 20, 4)},
         limit=("memcpy", raw_memory("copy", 1 << 20)),
         goal=lambda row: below(50, 0.95, row["limit"])),
    dict(metric="bulk pull 1 MiB, tcp, 4 in flight", unit="GiB/s", better="higher", read=gib,
         ours=perf("bulk-pull", "tcp://127.0.0.1:0", 1 << 20, 4),
         peers={"UCX get tcp": bare("ucx", "get-bandwidth", "tcp", 1 << 20, 4),
                **mercury_and_thallium("bulk", "ofi+tcp", 1 << 20, 4)},
         limit=("raw socket", raw_socket("stream", 64)),
         goal=lambda row: min(6.6, max(row["peers"].values(), default=6.6))),
    dict(metric="pipelined write of 256 MiB, shm, over the slower of wire and disk (tmpfs)",
         unit="times", better="higher", read=value, ours=pipelined_write("shm"), peers={},
         limit=None, goal=lambda row: 0.9, once=True),
    dict(metric="pipelined write of 256 MiB, tcp, over the slower of wire and disk (tmpfs)",
         unit="times", better="higher", read=value, ours=pipelined_write("tcp"), peers={},
         limit=None, goal=lambda row: 0.9, once=True),
    dict(metric="pipeline in a process, per item and hop", unit="ns", better="lower", read=value,
         ours=flow("pipeline"), peers=flow_peers("pipeline"), limit=None, goal=lambda row: 4),
    dict(metric="1000 stages in a process, per item and hop", unit="ns", better="lower", read=value,
         ours=flow("stages1000"), peers=flow_peers("stages1000"),
         limit=("10 stages", flow("stages10")),
         goal=lambda row: 3 * row["limit"] if row["limit"] else None),
    dict(metric="farm of 2 in a process, per item", unit="ns", better="lower", read=value,
         ours=flow("farm"), peers=flow_peers("farm"), limit=None, goal=lambda row: 25),
    dict(metric="stream of 64 B items, shm", unit="items/s", better="higher", read=rate,
         ours=stream("shm://", 64), peers={}, limit=None, goal=lambda row: 20e6),
    dict(metric="stream of 64 B items, tcp", unit="items/s", better="higher", read=rate,
         ours=stream("tcp://127.0.0.1:0", 64), peers={},
         limit=("raw socket, 64 KiB writes", raw_stream(64)), goal=lambda row: 8e6),
    dict(metric="stream of 64 KiB items, tcp", unit="GiB/s", better="higher", read=gib,
         ours=stream("tcp://127.0.0.1:0", 1 << 16), peers={},
         limit=("raw socket, 64 KiB writes", raw_stream(1 << 16)),
         goal=lambda row: min(4, row["limit"]) if row["limit"] else 4),
    dict(metric="farm of 2 groups with tasks of 1 ms, workers busy", unit="%", better="higher",
         read=value, ours=(["bench_flow_groups"], {}), peers={}, limit=None,
         goal=lambda row: 95, once=True),
    dict(metric="directory, query by id among a million, shm", unit="us", better="lower", read=us,
         ours=directory("query-id", "shm://"), peers={}, limit=None, goal=lambda row: 1),
    dict(metric="directory, query by attribute among a million, shm", unit="us", better="lower",
         read=us, ours=directory("query-attribute", "shm://"), peers={}, limit=None,
         goal=lambda row: 2),
    dict(metric="directory, registrations, shm", unit="1/s", better="higher", read=rate,
         ours=directory("register", "shm://"), peers={}, limit=None, goal=lambda row: 5e5),
    dict(metric="resource message round trip, shm, 8 B", unit="us", better="lower", read=us,
         ours=directory("message", "shm://"), peers={},
         limit=("bare port", perf("message-latency", "shm://", 8)),
         goal=lambda row: 1.3 * row["limit"] if row["limit"] else None),
    dict(metric="resource message round trip, tcp, 8 B", unit="us", better="lower", read=us,
         ours=directory("message", "tcp://127.0.0.1:0"), peers={},
         limit=("bare port", perf("message-latency", "tcp://127.0.0.1:0", 8)),
         goal=lambda row: 1.3 * row["limit"] if row["limit"] else None),
    *(inject_row(what, test, over, better, goal)
      for over in ("shm", "tcp")
      for what, test, better, goal in [
          ("latency, code cached, worst of 1 B to 1 MiB", "latency-cached", "lower", 1.1),
          ("rate, code cached, worst of 1 B to 1 MiB", "rate-cached", "higher", 0.9),
          ("latency, code in every message, 1 B", "latency-always-1", "lower", 1.5),
          ("latency, code in every message, 64 KiB", "latency-always-64k", "lower", 1.05)]),
    dict(metric="injected code, first use of a signed image of 4 KiB, shm", unit="us", better="lower",
         read=value, ours=inject("first-use", "shm://"), peers={}, limit=None,
         goal=lambda row: 150),
    dict(metric="allocations per message, shm", unit="1", better="lower", read=value,
         ours=steady_state("message-shm"), peers={}, limit=None, goal=lambda row: 0, once=True),
    dict(metric="allocations per message, tcp", unit="1", better="lower", read=value,
         ours=steady_state("message-tcp"), peers={}, limit=None, goal=lambda row: 0, once=True),
    dict(metric="allocations per call, shm", unit="1", better="lower", read=value,
         ours=steady_state("rpc-shm"), peers={}, limit=None, goal=lambda row: 0, once=True),
    dict(metric="allocations per call, tcp", unit="1", better="lower", read=value,
         ours=steady_state("rpc-tcp"), peers={}, limit=None, goal=lambda row: 0, once=True),
    dict(metric="from the start of a program to its first answer and its end, shm", unit="ms",
         better="lower", read=value, ours=first_answer("shm"),
         peers={"MPI_Init": (["bench_first_mpi"], {}),
                "gRPC unix": (["bench_first_grpc", "unix"], {})},
         limit=("the same program, doing nothing", first_answer("nothing")),
         goal=lambda row: 1.5),
    dict(metric="from the start of a program to its first answer and its end, tcp", unit="ms",
         better="lower", read=value, ours=first_answer("tcp"),
         peers={"gRPC tcp": (["bench_first_grpc", "tcp"], {})},
         limit=("the same program, doing nothing", first_answer("nothing")),
         goal=lambda row: 1.5),
    plug_in_row("ucx+tcp", "UCX", "bench_first_ucx"),
    plug_in_row("ofi+tcp", "libfabric", "bench_first_ofi"),
    # Each of the 2,016 pairs of the row below may hold that much.
    dict(metric="memory of one pair of shm ports, messages of 8 B one by one", unit="KiB",
         better="lower", read=value, ours=(["bench_shm_pair", "calm"], {}), peers={}, limit=None,
         goal=lambda row: 128 * 1024 / 2016, once=True),
    dict(metric="memory of one pair of shm ports, both rings filled", unit="KiB",
         better="lower", read=value, ours=(["bench_shm_pair", "busy"], {}), peers={}, limit=None,
         goal=None, once=True),
    dict(metric="memory of 64 processes that all talk to all, shm", unit="MiB", better="lower",
         read=value, ours=(["bench_shm_processes", "64"], {}), peers={}, limit=None,
         goal=lambda row: 128, once=True),
    dict(metric="memory of an idle tcp peer, of 10,000", unit="KiB", better="lower",
         read=lambda line: line["value"] / 1024,
         ours=(["bench_idle_peers", "memory"], {}), peers={}, limit=None,
         goal=lambda row: 64, once=True),
    dict(metric="tcp round trip beside 10,000 idle peers, over alone", unit="times",
         better="lower", read=value, ours=(["bench_idle_peers", "slowdown"], {}), peers={},
         limit=None, goal=lambda row: 1.2),
    # The resolution of the kernel's CPU accounting over the 2 s that are watched.
    dict(metric="CPU of an idle engine (shm and tcp)", unit="%", better="lower", read=value,
         ours=steady_state("idle-cpu"), peers={}, limit=None, goal=lambda row: 0.1, once=True),

    task_row("ULT yield", "yield", "boost_fiber argobots", within(12)),
    task_row("ULT create + join, one by one", "create-join", "boost_fiber argobots std_thread",
             within(25)),
    task_row("ULT create + join, batches of 1000", "create-join-batch",
             "boost_fiber one_tbb argobots std_thread", within(25)),
    task_row("tasklet create + join, batches of 1000", "tasklet", "one_tbb argobots",
             lambda row: 12),
    task_row("tasklet without a handle, batches of 1000", "tasklet-post", "one_tbb argobots",
             lambda row: 12),
    task_row("ULT create on another stream + join", "other-stream",
             "boost_fiber one_tbb argobots", lambda row: 100),
    task_row("mutex lock + unlock, uncontended", "mutex", "boost_fiber argobots std_thread",
             lambda row: 9),
    task_row("channel hop between two ULTs", "channel-hop", "boost_fiber", lambda row: 25),
    call_row("call, ULT handler, shm", "shm-call", 1600),
    call_row("call, inline handler, shm", "shm-inline", 1100),
    call_row("call in a user's event loop, shm", "shm-loop", 2200),
    # At most 5 % more than the same took in commit 05287b7, before short calls had their own way.
    call_row("call, interceptor at both ends, shm", "shm-interceptor", 1.05 * 3587),
    call_row("call, metadata, shm", "shm-metadata", 1.05 * 5131),
    call_row("call, checksum, shm", "shm-checksum", 1.05 * 3376),
    call_row("call, metadata, checksum and deadline, shm", "shm-metadata-checksum-deadline",
             1.05 * 6066),
    call_row("resource message there, 8 B, shm", "post", None, program="messages"),
    call_row("resource message and one back, shm", "exchange", None, program="messages"),
    # The "peer" is the same call in the native encoding.
    dict(metric="instructions: call with a struct of ten fields in XDR, beside native",
         unit="instructions", better="lower", read=value,
         ours=instructions("encodings", "call-xdr"),
         peers={"native": instructions("encodings", "call-native")}, limit=None,
         goal=lambda row: 1.05 * row["peers"]["native"] if "native" in row["peers"] else None,
         once=True),
    count_row("ULT yield", "yield", "boost_fiber argobots"),
    count_row("ULT create + join, one by one", "create-join", "boost_fiber argobots"),
    count_row("ULT create + join, batches of 1000", "create-join-batch",
              "boost_fiber one_tbb argobots"),
    count_row("tasklet create + join, batches of 1000", "tasklet", "one_tbb argobots"),
    count_row("channel hop between two ULTs", "channel-hop", "boost_fiber"),
    task_row("13 queens on 2 streams", "nqueens-2", "boost_fiber one_tbb argobots",
             lambda row: row["peers"].get("oneTBB"), how=long_tasks, unit="ms"),
    task_row("13 queens, 2 streams over 1", "nqueens-speed-up", "one_tbb argobots",
             lambda row: 1.9, how=long_tasks, unit="times", better="higher"),
    task_row("loop of 10 million cheap iterations, 2 processors", "parallel-for",
             "one_tbb fastflow_parallel", lambda row: row["peers"].get("oneTBB"), how=long_tasks,
             unit="ms"),
    task_row("Cholesky of 16 x 16 tiles as a task graph, 2 processors", "cholesky",
             "one_tbb fastflow_parallel", lambda row: row["peers"].get("oneTBB"), how=long_tasks,
             unit="ms"),
    fastflow_graph("hop", "hop", 1.3),
    fastflow_graph("farm of 2", "farm"),
    fastflow_graph("ordered farm of 2", "ordered-farm"),
    fastflow_graph("all-to-all 2 x 2", "all-to-all"),
    fastflow_graph("feedback farm of 2", "feedback-farm"),
    fastflow_loop("ParallelFor, 10 million cheap iterations, 2 processors", "parallel-for"),
    fastflow_loop("ff_mdf, Cholesky of 16 x 16 tiles, 2 processors", "mdf"),
    *(row for over in ("TCP", "shm")
      for row in (fastflow_groups(f"64 B, {over.lower()}", over, 64, 20),
                  fastflow_groups(f"64 B in batches of 64, {over.lower()}", over, 64, batch=64),
                  fastflow_groups(f"64 KiB, {over.lower()}", over, 1 << 16))),
    task_row("memory of 100,000 parked ULTs", "parked-memory", "boost_fiber argobots",
             lambda row: 1024, unit="MiB", once=True),
    # A tenth of a byte for each, so that a page here or there is no growth.
    task_row("memory that 10 million creations leave", "creation-growth", "", lambda row: 1024,
             unit="KiB", once=True),
]

# Programs that draw what a figure cannot say, into the file that is their first argument.
DIAGRAMS = {
    # 5,000 hosts need 9 GB and ten minutes: by hand.
    "directory of many hosts": ["bench_directory_scale", "10", "100", "1000"],
    "computing and communicating": ["bench_sustainability"],
    "injected code by payload": ["bench_inject_curves"],
    "cost of growth": ["bench_growth"],
}
