// Processes, and tables of other numbers: rows stay where they are, so that buttons keep the focus.
"use strict";

const tables = (() => {
  const at = id => document.getElementById(id);
  let chosen = "";        // Name of the table that is shown.
  let ask = () => {};     // For the ULTs of a process.
  let last = [];

  function cells(row, texts, from) {
    while (row.cells.length < texts.length) row.insertCell();
    texts.forEach((text, i) => {
      const cell = row.cells[i];
      if (cell.textContent !== text) cell.textContent = text;
      cell.className = i >= from ? "number" : "";
    });
  }

  function showProcesses(state, bytes) {
    const rows = at("processes");
    const known = new Map([...rows.rows].map(row => [row.dataset.key, row]));
    const called = new Map();  // How many so far by each label: who looks at two may name one twice.
    state.processes.forEach((each, i) => {
      called.set(each.label, (called.get(each.label) || 0) + 1);
      const key = called.get(each.label) + " " + each.label;
      let row = known.get(key);
      known.delete(key);
      if (!row) {
        row = rows.insertRow();
        row.dataset.key = key;
      }
      if (rows.rows[i] !== row) rows.insertBefore(row, rows.rows[i]);
      const cores = each.running ? each.processor.toFixed(2) + (each.cores ? ` of ${each.cores}` : "") : "";
      cells(row, [each.label, each.where, each.state, cores, each.memory ? bytes(each.memory) : ""], 3);
      const well = each.running || each.state === "ended with exit code 0" || each.state === "ended";
      row.cells[2].className = well ? "" : "bad";
      if (!row.cells[5]) {
        const button = Object.assign(document.createElement("button"), { type: "button", textContent: "ULTs" });
        button.setAttribute("aria-label", `ULTs of ${each.label}`);
        button.addEventListener("click", () => ask(each.label));
        row.insertCell().append(button);
      }
      row.cells[5].firstChild.hidden = !state.tells_ults;
      row.cells[5].firstChild.disabled = !each.running;
    });
    for (const gone of known.values()) gone.remove();
    rows.parentNode.className = state.processes.some(each => each.where) ? "" : "nowhere";
  }

  function showTabs() {
    const tabs = at("tabs");
    const names = last.map(each => each.name);
    if (!names.includes(chosen)) chosen = names[0] || "";
    if ([...tabs.children].map(each => each.textContent).join() !== names.join()) {
      tabs.textContent = "";
      for (const name of names) {
        const tab = Object.assign(document.createElement("button"), { type: "button", textContent: name });
        tab.setAttribute("role", "tab");
        tab.addEventListener("click", () => { chosen = name; showTabs(); showTable(); });
        tabs.append(tab);
      }
    }
    for (const tab of tabs.children) tab.setAttribute("aria-selected", tab.textContent === chosen);
  }

  function showTable() {
    const table = last.find(each => each.name === chosen);
    const into = at("table");
    if (!table) return;
    if (into.dataset.name !== table.name) {
      into.textContent = "";
      into.dataset.name = table.name;
      const made = document.createElement("table");
      const head = made.createTHead().insertRow();
      table.columns.forEach((title, i) => {
        const cell = Object.assign(document.createElement("th"), { scope: "col", textContent: title });
        if (i >= table.texts) cell.className = "number";
        head.append(cell);
      });
      made.createTBody();
      into.append(made, document.createElement("p"));
    }
    const body = into.querySelector("tbody");
    while (body.rows.length > table.rows.length) body.deleteRow(-1);
    table.rows.forEach((row, i) => cells(body.rows[i] || body.insertRow(), row, table.texts));
    into.lastChild.textContent = table.more ? `${table.more} more rows are not shown.` : "";
  }

  function show(state, bytes) {
    showProcesses(state, bytes);
    last = state.tables;
    at("tables").hidden = last.length === 0;
    if (last.length === 0) return;
    showTabs();
    showTable();
  }

  return { show, onAsk(call) { ask = call; } };
})();
