// The live page: takes states from `amalgam run` or `amalgam top`, and shows them.
"use strict";

(() => {
  const token = new URLSearchParams(location.search).get("token");
  const at = id => document.getElementById(id);
  const most_lines = 1000;
  const retry = 2000;  // Milliseconds until a run that is over is looked for again.
  let state = null, paused = false, over = false, source = null;

  const bytes = number => number >= 1 << 30 ? (number / (1 << 30)).toFixed(1) + " GiB"
    : number >= 1 << 20 ? (number / (1 << 20)).toFixed(1) + " MiB" : (number / 1024).toFixed(0) + " KiB";
  const seconds = number => number >= 1 ? number.toFixed(1) + " s" : (number * 1000).toFixed(number < 0.01 ? 1 : 0) + " ms";

  function showState() {
    at("state-text").textContent = `${state.state}, ${state.seconds.toFixed(0)} s` + (state.sentence ? `: ${state.sentence}` : "");
    document.body.className = state.state;
    at("command").textContent = state.command;
    document.title = `${state.state}: ${state.command}`;
    at("stop").hidden = at("stop-key").hidden = !state.can_stop;
    at("checkpoint").hidden = at("checkpoint-key").hidden = at("ask-kept").hidden = !state.can_checkpoint;
    at("ask-text").hidden = state.can_checkpoint;
    at("stop").disabled = at("checkpoint").disabled = state.state !== "running";
    at("graph-section").hidden = at("node-keys").hidden = !state.has_graph;
    for (const each of document.querySelectorAll(".of-graph")) each.hidden = !state.has_graph;
    for (const each of document.querySelectorAll(".of-all")) each.hidden = state.has_graph;
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

  function show() {
    if (!state) return;
    showState();
    showNeck();
    if (state.has_graph) showDetails(graph.draw(at("graph"), state).chosen);
    at("more-nodes").hidden = !state.more_nodes;
    at("more-nodes").textContent = `${state.more_nodes} more nodes are not shown.`;
    at("items-now").textContent = curves.draw(at("items"), 1, number => graph.short(number) + "/s");
    at("bytes-now").textContent = curves.draw(at("bytes"), 2, number => bytes(number) + "/s");
    at("queued-now").textContent = curves.draw(at("queued"), 3, seconds);
    at("cores-now").textContent = curves.draw(at("cores"), 4, number => number.toFixed(2));
    at("memory-now").textContent = curves.draw(at("memory"), 5, bytes);
    tables.show(state, bytes);
  }

  function log(lines) {
    const pane = at("log");
    at("log-section").hidden = false;
    const follows = pane.scrollTop + pane.clientHeight >= pane.scrollHeight - 8;
    for (const line of lines) pane.append(line + "\n");
    while (pane.childNodes.length > most_lines) pane.firstChild.remove();
    if (follows) pane.scrollTop = pane.scrollHeight;
  }

  function connect() {
    if (source || document.hidden) return;
    source = new EventSource("/events?token=" + encodeURIComponent(token));
    source.addEventListener("open", () => { at("log").textContent = ""; over = false; });  // All lines come again.
    source.addEventListener("history", event => curves.start(JSON.parse(event.data).slice(0, -1)));
    source.addEventListener("log", event => log(JSON.parse(event.data)));
    source.addEventListener("ults", event => ults.take(JSON.parse(event.data)));
    source.addEventListener("state", event => {
      state = JSON.parse(event.data);
      curves.add(state.point);
      over = state.state === "ended" || state.state === "failed";
      if (over) leave();
      if (!paused || over) show();
    });
    source.addEventListener("error", () => {
      const refused = source.readyState === EventSource.CLOSED;
      if (refused) disconnect();
      if (over) return refused ? undefined : leave();
      document.body.className = "lost";
      at("state-text").textContent = refused
        ? "this run is over; a page of a later one is at the address that amalgam has printed"
        : "no contact with amalgam; trying again";
      at("stop").disabled = at("checkpoint").disabled = true;
    });
  }

  // A later one at this address has this token only if a file keeps it.
  function leave() {
    disconnect();
    if (state.returns) setTimeout(connect, retry);
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
    if (!at("stop").disabled && !at("stop").hidden && !at("ask").open) at("ask").showModal();
  }

  // Returns why not.
  async function post(path) {
    try {
      const answer = await fetch(path, { method: "POST", headers: { "X-Amalgam-Token": token } });
      return answer.ok ? "" : (await answer.text()).trim();
    } catch (wrong) {
      return "no contact with amalgam";
    }
  }

  async function stop() {
    at("stop").disabled = true;
    const wrong = await post("/stop");
    if (wrong) log(["the run was not stopped: " + wrong]);
  }

  async function checkpoint() {
    if (at("checkpoint").disabled || at("checkpoint").hidden) return;
    at("checkpoint").disabled = true;  // Until the next state.
    const wrong = await post("/checkpoint");
    if (wrong) log(["no checkpoint was taken: " + wrong]);
  }

  at("checkpoint").addEventListener("click", checkpoint);
  at("pause").addEventListener("click", pause);
  at("stop").addEventListener("click", ask);
  at("ask").addEventListener("close", () => { if (at("ask").returnValue === "yes") stop(); at("ask").returnValue = ""; });
  document.addEventListener("keydown", pressed => {
    if (pressed.ctrlKey || pressed.metaKey || pressed.altKey || document.querySelector("dialog[open]")) return;
    if (pressed.key === "p") pause();
    if (pressed.key === "s") ask();
    if (pressed.key === "c") checkpoint();
    if (pressed.key === "Escape") { graph.letGo(); show(); }
  });
  // Browsers keep few connections to one host: a page that nobody sees needs none.
  document.addEventListener("visibilitychange", () => document.hidden ? disconnect() : over && !state.returns ? undefined : connect());
  addEventListener("resize", show);
  graph.onChoice(show);
  tables.onAsk(ults.ask);
  ults.onPost(post);
  connect();
})();
