#!/usr/bin/env python3
"""Runs every comparison in one go and writes report.json and report.md, and the diagrams.

A row is measured many times, shortly, ours and its peers in turn, so that a slow moment of the
machine falls on all of them. The median counts: of figures, and for ratios and goals that of what
each round says by itself, since a machine with two paces has the quick one in some rounds only.
Usage: run.py BUILD_DIR OUT_DIR [ROUNDS [WORDS]]
WORDS: only rows whose metric has them, and diagrams whose name has.
"""
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys

from rows import DIAGRAMS, ROWS

BUILD, OUT = sys.argv[1], sys.argv[2]
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 15
WORDS = sys.argv[4] if len(sys.argv) > 4 else ""
# The programs are found before any of the same name.
os.environ["PATH"] = os.path.join(os.path.realpath(BUILD), "bin") + os.pathsep + os.environ["PATH"]
left_out = set()


def is_here(words):
    """Whether a command can run; says so once for each program that is missing."""
    programs = words[:1] + [word for word in words[1:] if word.startswith("bench_")]
    missing = [name for name in programs if shutil.which(name) is None]
    for name in missing:
        if name not in left_out:
            print(f"  skipped: {name} is not installed", file=sys.stderr)
        left_out.add(name)
    return not missing


def output_of(words, environment):
    """What a command writes. One that does not end is killed with all that it has started."""
    with subprocess.Popen(words, env=environment, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, start_new_session=True) as started:
        try:
            return started.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            raise


def run(command, read):
    """One figure, or None with a line on stderr."""
    words, environment = command
    if not is_here(words):
        return None
    said = ""
    try:
        figures, errors = output_of(words, {**os.environ, **environment})
        said = errors.strip().rpartition("\n")[2]
        return read(json.loads(figures.strip().splitlines()[-1]))
    except (subprocess.TimeoutExpired, ValueError, IndexError, KeyError) as e:
        print(f"  {' '.join(words)}: {type(e).__name__} {said}", file=sys.stderr)
        return None


def median(samples):
    samples = [s for s in samples if s is not None]
    return statistics.median(samples) if samples else None


def over(figures, others):
    """What a round's figure is of the other one of that round, in the median of the rounds."""
    return median([f / o for f, o in zip(figures, others) if f is not None and o])


def goals(row, peers, limits):
    """What the row's goal was in each round; None where a round lacks what the goal is made of."""
    of_rounds = []
    for number, limit in enumerate(limits):
        beside = {name: s[number] for name, s in peers.items() if s[number] is not None}
        of_rounds.append(row["goal"]({"peers": beside, "limit": limit}))
    return of_rounds


def measure(row):
    rounds = 1 if row.get("once") else ROUNDS
    ours, limits = [], []
    peers = {name: [] for name in row["peers"]}
    for _ in range(rounds):
        ours.append(run(row["ours"], row["read"]))
        for name, command in row["peers"].items():
            peers[name].append(run(command, row["read"]))
        limits.append(run(row["limit"][1], row["read"]) if row["limit"] else None)
    figures = {name: median(s) for name, s in peers.items() if median(s) is not None}
    pick = min if row["better"] == "lower" else max
    best = pick(figures, key=figures.get) if figures else None
    if row.get("alike") in figures:
        best = row["alike"]
    goal = met = None
    if row["goal"]:
        of_rounds = goals(row, peers, limits)
        goal, reached = median(of_rounds), over(ours, of_rounds)
        if reached is not None:
            met = reached <= 1 if row["better"] == "lower" else reached >= 1
    return {"metric": row["metric"], "section": row.get("section", ""), "unit": row["unit"],
            "better": row["better"], "ours": median(ours), "peer": best or "",
            "peer_value": figures.get(best), "limit": (row["limit"] or ("",))[0],
            "limit_value": median(limits), "ratio": over(ours, peers[best] if best else limits),
            "goal": goal, "met": met, "peers": figures,
            "rounds": {"ours": ours, "limit": limits, "peers": peers}}


def show(number):
    if number is None:
        return "-"
    if number >= 1e6:
        return f"{number / 1e6:.2f} M"
    if number >= 1e4:
        return f"{number / 1e3:.1f} k"
    return f"{number:.0f}" if number >= 1000 else f"{number:.3g}"


def markdown(rows):
    lines = ["# Benchmarks", "",
             f"Ours and each peer in one run, processes pinned to a processor each, median of "
             f"{ROUNDS} rounds. *Ratio* is ours over the best peer, or over the limit where there "
             f"is no peer, in one round, and a goal is what that round asks for: the median of the "
             f"rounds counts for both, too. *Limit* is the hardware or the kernel alone. Of puts, "
             f"the peer that waits until the bytes are at the target counts, as ours do; "
             f"report.json also has the one that only hands them over."]
    # Rows of a section stand together; those without one are first.
    section = None
    for r in sorted(rows, key=lambda r: r["section"]):
        if r["section"] != section:
            section = r["section"]
            lines += ["", f"## {section}"] if section else []
            lines += ["", "| metric | unit | better | ours | best peer | limit | ratio | goal | met |",
                      "|---|---|---|---|---|---|---|---|---|"]
        peer = f"{show(r['peer_value'])} ({r['peer']})" if r["peer"] else "-"
        limit = f"{show(r['limit_value'])} ({r['limit']})" if r["limit"] else "-"
        met = {True: "yes", False: "**no**", None: "-"}[r["met"]]
        lines.append(f"| {r['metric']} | {r['unit']} | {r['better']} | {show(r['ours'])} | {peer} "
                     f"| {limit} | {show(r['ratio'])} | {show(r['goal'])} | {met} |")
    return "\n".join(lines) + "\n"


def draw(name, words):
    """NAME.svg, and NAME.jsonl with what it is drawn from."""
    there = os.path.join(OUT, name.replace(" ", "-"))
    if not is_here(words):
        return
    with open(there + ".jsonl", "w") as file:
        done = subprocess.run([words[0], there + ".svg", *words[1:]], timeout=1800, stdout=file)
    if done.returncode != 0:
        print(f"  {' '.join(words)} ended with {done.returncode}", file=sys.stderr)


def main():
    os.makedirs(OUT, exist_ok=True)
    rows = []
    asked = [row for row in ROWS if WORDS in row["metric"]]
    for number, row in enumerate(asked, 1):
        print(f"[{number}/{len(asked)}] {row['metric']}", flush=True)
        rows.append(measure(row))
        with open(os.path.join(OUT, "report.json"), "w") as file:
            json.dump(rows, file, indent=2)
    for name, words in DIAGRAMS.items():
        if WORDS in name:
            print(f"diagram: {name}", flush=True)
            draw(name, words)
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
