// The live page of a run: takes states from the launcher, and shows them.
"use strict";

(() => {
  const token = new URLSearchParams(location.search).get("token");
  const at = id => document.getElementById(id);
  const most_lines = 1000;
  let state = null, paused = false, over = false, source = null;

  const bytes = number => number >= 1 << 30 ? (number / (1 << 30)).toFixed(1) + " GiB"
    : number >= 1 << 20 ? (number / (1 << 20)).toFixed(1) + " MiB" : (number / 1024).toFixed(0) + " KiB";
  const seconds = number => number >= 1 ? number.toFixed(1) + " s" : (number * 1000).toFixed(number < 0.01 ? 1 : 0) + " ms";

  function showState() {
    const text = { running: "running", stopping: "stopping", ended: "ended", failed: "failed" }[state.state] || state.state;
    at("state-text").textContent = `${text}, ${state.seconds.toFixed(0)} s` + (state.sentence ? `: ${state.sentence}` : "");
    document.body.className = state.state;
    at("command").textContent = state.command;
    document.title = `${state.state}: ${state.command}`;
    at("stop").disabled = state.state !== "running";
  }

  function showNeck() {
    const neck = state.bottleneck;
    at("neck").hidden = !neck.sentence;
    for (const [id, text] of [["neck-sentence", neck.sentence], ["neck-advice", neck.advice && "Try: " + neck.advice + "."]])
      if (at(id).textContent !== text) at(id).textContent = text;
  }

  function showDetails(node) {
    const list = at("details");
    list.hidden = !node;
    list.textContent = "";
    if (!node) return;
    const percent = part => Math.round(part * 100) + " %";
    for (const [what, value] of [
      ["node", node.name], ["processes", node.processes.filter(name => name).join(", ") || "this one"],
      ["taken", node.taken.toLocaleString("en")], ["given", node.given.toLocaleString("en")],
      ["computes", percent(node.work)], ["waits for a core", percent(node.core)], ["for a lock", percent(node.lock)],
      ["for something else", percent(node.outside)], ["for items", percent(node.input)], ["for room", percent(node.output)]]) {
      list.append(Object.assign(document.createElement("dt"), { textContent: what }),
                  Object.assign(document.createElement("dd"), { textContent: value }));
    }
  }

  function showProcesses() {
    const rows = at("processes");
    rows.textContent = "";
    for (const each of state.processes) {
      const row = rows.insertRow();
      for (const text of [each.label, each.where, each.state]) row.insertCell().textContent = text;
      if (!each.running && each.state !== "ended with exit code 0") row.cells[2].className = "bad";
      for (const text of [each.processor === undefined ? "" : `${each.processor.toFixed(2)} of ${each.cores}`,
                          each.memory ? bytes(each.memory) : ""]) {
        const cell = row.insertCell();
        cell.textContent = text;
        cell.className = "number";
      }
    }
  }

  function show() {
    if (!state) return;
    showState();
    showNeck();
    showDetails(graph.draw(at("graph"), state).chosen);
    at("more-nodes").hidden = !state.more_nodes;
    at("more-nodes").textContent = `${state.more_nodes} more nodes are not shown.`;
    at("items-now").textContent = curves.draw(at("items"), 1, number => graph.short(number) + "/s");
    at("bytes-now").textContent = curves.draw(at("bytes"), 2, number => bytes(number) + "/s");
    at("queued-now").textContent = curves.draw(at("queued"), 3, seconds);
    showProcesses();
  }

  function log(lines) {
    const pane = at("log");
    const follows = pane.scrollTop + pane.clientHeight >= pane.scrollHeight - 8;
    for (const line of lines) pane.append(line + "\n");
    while (pane.childNodes.length > most_lines) pane.firstChild.remove();
    if (follows) pane.scrollTop = pane.scrollHeight;
  }

  function connect() {
    if (over || source) return;
    source = new EventSource("/events?token=" + encodeURIComponent(token));
    source.addEventListener("open", () => { at("log").textContent = ""; });  // All lines come again.
    source.addEventListener("history", event => curves.start(JSON.parse(event.data).slice(0, -1)));
    source.addEventListener("log", event => log(JSON.parse(event.data)));
    source.addEventListener("state", event => {
      state = JSON.parse(event.data);
      curves.add(state.point);
      over = state.state === "ended" || state.state === "failed";
      if (over) disconnect();
      if (!paused || over) show();
    });
    source.addEventListener("error", () => {
      if (over) return;
      const refused = source.readyState === EventSource.CLOSED;
      if (refused) disconnect();
      document.body.className = "lost";
      at("state-text").textContent = refused
        ? "this run is over; a page of a later one is at the address that amalgam run has printed"
        : "no contact with the launcher; trying again";
      at("stop").disabled = true;
    });
  }

  function disconnect() {
    if (source) source.close();
    source = null;
  }

  function pause() {
    paused = !paused;
    at("pause").setAttribute("aria-pressed", paused);
    at("pause").textContent = paused ? "Go on" : "Pause";
    if (!paused) show();
  }

  function ask() {
    if (!at("stop").disabled && !at("ask").open) at("ask").showModal();
  }

  async function stop() {
    at("stop").disabled = true;
    try {
      const answer = await fetch("/stop", { method: "POST", headers: { "X-Amalgam-Token": token } });
      if (!answer.ok) log(["the run was not stopped: " + (await answer.text()).trim()]);
    } catch (wrong) {
      log(["the launcher does not answer: the run may be over"]);
    }
  }

  at("pause").addEventListener("click", pause);
  at("stop").addEventListener("click", ask);
  at("ask").addEventListener("close", () => { if (at("ask").returnValue === "yes") stop(); at("ask").returnValue = ""; });
  document.addEventListener("keydown", pressed => {
    if (pressed.ctrlKey || pressed.metaKey || pressed.altKey || at("ask").open) return;
    if (pressed.key === "p") pause();
    if (pressed.key === "s") ask();
    if (pressed.key === "Escape") { graph.letGo(); show(); }
  });
  // Browsers keep few connections to one host: a page that nobody sees needs none.
  document.addEventListener("visibilitychange", () => document.hidden ? disconnect() : connect());
  addEventListener("resize", show);
  graph.onChoice(show);
  connect();
})();
