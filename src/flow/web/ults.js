// The ULTs of a process, asked for by its button: what each waits for, and its stack.
"use strict";

const ults = (() => {
  const at = id => document.getElementById(id);
  const patience = 10000;  // Milliseconds without an answer.
  let process = "", timer = 0, post = async () => "";

  const note = text => { at("ults-note").textContent = text; };
  const lasting = seconds => seconds >= 1 ? ` for ${seconds.toFixed(1)} s` : seconds > 0 ? ` for ${(seconds * 1000).toFixed(0)} ms` : "";

  async function ask(whose) {
    process = whose;
    at("ults-title").textContent = `ULTs of ${whose}`;
    at("ults-list").textContent = "";
    note("asking");
    if (!at("ults").open) at("ults").showModal();
    clearTimeout(timer);
    timer = setTimeout(() => note("no answer: the process may be stopped, or compute without a wait"), patience);
    const wrong = await post("/ults?process=" + encodeURIComponent(whose));
    if (!wrong) return;
    clearTimeout(timer);
    note(wrong);
  }

  function line(each, names) {
    const who = each.name ? `"${each.name}"` : each.id;
    const what = each.waits_for ? `waits for ${each.waits_for}` : each.state;
    const by = each.unit ? ` of ${names.get(each.unit) || each.unit}` : "";
    return `${who}: ${what}${by}${each.state === "parked" ? lasting(each.waited) : ""}${each.stream ? `, on ${each.stream}` : ""}`;
  }

  function take(told) {
    if (told.process !== process || !at("ults").open) return;
    clearTimeout(timer);
    const list = at("ults-list");
    list.textContent = "";
    if (told.why) return note(told.why);
    const count = told.ults.length + told.left_out;
    note(`${count} ULT${count === 1 ? "" : "s"}, process ${told.pid} on ${told.host}` +
         (told.left_out ? `; ${told.left_out} are not shown` : ""));
    const names = new Map(told.ults.map(each => [each.id, each.name ? `"${each.name}"` : each.id]));
    for (const each of told.ults) {
      const one = document.createElement("details");
      one.append(Object.assign(document.createElement("summary"), { textContent: line(each, names) }));
      const trace = each.trace.length ? each.trace.join("\n") : "its stack cannot be read";
      one.append(Object.assign(document.createElement("pre"), { textContent: trace }));
      one.open = told.ults.length <= 3;
      list.append(one);
    }
  }

  at("ults-again").addEventListener("click", () => ask(process));
  at("ults-close").addEventListener("click", () => at("ults").close());
  at("ults").addEventListener("close", () => clearTimeout(timer));

  return { ask, take, onPost(call) { post = call; } };
})();
