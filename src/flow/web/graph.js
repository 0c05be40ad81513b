// Draws the graph of a run: where its nodes stand, once for each shape; what they do, at each state.
"use strict";

const graph = (() => {
  const wide = 156, high = 62;  // Of a node's box.
  const space = "http://www.w3.org/2000/svg";
  const parts = ["work", "core", "lock", "outside", "input", "output"];
  let shape = "";         // Of what is drawn now.
  let drawn = null;       // { nodes: Map, edges: Map }
  let chosen = "";
  let tell = () => {};    // Of a node that was chosen.

  function make(name, attributes, inside) {
    const made = document.createElementNS(space, name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    if (inside) inside.append(made);
    return made;
  }

  // Replicas of a node, and what is combined with it, are one box.
  function merged(state) {
    const nodes = new Map();
    for (const each of state.nodes) {
      let one = nodes.get(each.name);
      if (!one) {
        one = { name: each.name, copies: 0, taken: 0, given: 0, taken_rate: 0, given_rate: 0, ended: true,
                processes: [], inside: each.inside };
        for (const part of parts) one[part] = 0;
        nodes.set(each.name, one);
      }
      ++one.copies;
      one.processes.push(each.process);
      for (const sum of ["taken", "given", "taken_rate", "given_rate"]) one[sum] += each[sum];
      one.ended = one.ended && each.ended;
      const work = Math.max(0, each.busy - each.core - each.lock - each.outside);
      for (const part of parts) one[part] += part === "work" ? work : each[part];
    }
    for (const one of nodes.values())
      for (const part of parts) one[part] /= one.copies;
    const edges = new Map();
    for (const each of state.channels) {
      if (!nodes.has(each.from) || !nodes.has(each.to)) continue;
      const key = each.from + "\n" + each.to;
      let one = edges.get(key);
      if (!one) edges.set(key, one = { from: each.from, to: each.to, items: 0, rate: 0, bytes_rate: 0, waiting: 0,
                                       most_waiting: 0, between: each.between });
      for (const sum of ["items", "rate", "bytes_rate", "waiting", "most_waiting"]) one[sum] += each[sum];
    }
    return { nodes, edges };
  }

  // The layer of each node: behind all that lead to it, but for edges that close a loop.
  function layers(nodes, edges) {
    const to = new Map([...nodes.keys()].map(name => [name, []]));
    const enters = new Set();
    for (const edge of edges.values()) { to.get(edge.from).push(edge); enters.add(edge.to); }
    const layer = new Map(), open = new Set(), order = [];
    const visit = start => {  // Without recursion: pipelines may be long.
      const stack = [[start, 0]];
      open.add(start);
      while (stack.length) {
        const top = stack[stack.length - 1];
        const edge = to.get(top[0])[top[1]++];
        if (!edge) {
          open.delete(top[0]); order.push(top[0]); layer.set(top[0], 0); stack.pop();
        } else if (open.has(edge.to)) {
          edge.loop = true;
        } else if (!layer.has(edge.to)) {
          open.add(edge.to); stack.push([edge.to, 0]);
        }
      }
    };
    for (const name of nodes.keys()) if (!enters.has(name)) visit(name);
    for (const name of nodes.keys()) if (!layer.has(name)) visit(name);
    for (const name of order.reverse())
      for (const edge of to.get(name))
        if (!edge.loop) layer.set(edge.to, Math.max(layer.get(edge.to), layer.get(name) + 1));
    const all = [];
    for (const [name, at] of layer) (all[at] = all[at] || []).push(name);
    // Each beside those that lead to it, as well as a few rounds of averages do.
    const place = new Map();
    all.forEach(names => names.forEach((name, i) => place.set(name, i - (names.length - 1) / 2)));
    for (let round = 0; round < 4; ++round) {
      for (const names of all) {
        const wanted = new Map(names.map(name => [name, place.get(name)]));
        for (const name of names) {
          const before = [...edges.values()].filter(edge => edge.to === name && !edge.loop);
          if (before.length)
            wanted.set(name, before.reduce((sum, edge) => sum + place.get(edge.from), 0) / before.length);
        }
        names.sort((a, b) => wanted.get(a) - wanted.get(b) || a.localeCompare(b, undefined, { numeric: true }));
        names.forEach((name, i) => place.set(name, i - (names.length - 1) / 2));
      }
    }
    return all;
  }

  function path(from, to, down, loop) {
    if (loop) {  // Around the outside.
      const x1 = from.x + wide / 2, y1 = from.y + high, x2 = to.x + wide / 2, y2 = to.y + high;
      const low = Math.max(y1, y2) + 34, left = Math.max(4, Math.min(from.x, to.x) - 50);
      return down ? `M${from.x},${from.y + high / 2} C${left},${from.y} ${left},${to.y + high} ${to.x},${to.y + high / 2}`
                  : `M${x1},${y1} C${x1},${low} ${x2},${low} ${x2},${y2}`;
    }
    const x1 = down ? from.x + wide / 2 : from.x + wide, y1 = down ? from.y + high : from.y + high / 2;
    const x2 = down ? to.x + wide / 2 : to.x, y2 = down ? to.y : to.y + high / 2;
    return down ? `M${x1},${y1} C${x1},${(y1 + y2) / 2} ${x2},${(y1 + y2) / 2} ${x2},${y2}`
                : `M${x1},${y1} C${(x1 + x2) / 2},${y1} ${(x1 + x2) / 2},${y2} ${x2},${y2}`;
  }

  function build(into, nodes, edges, down) {
    const all = layers(nodes, edges);
    const room = into.clientWidth || 800;
    const fit = Math.max(1, Math.floor((room - 18) / (wide + 14)));
    const most = Math.max(1, ...all.map(names => names.length));
    const across = down ? Math.min(fit, most) : most;
    // Layers follow each other to the right, or on narrow screens downward.
    const step = down ? high + 56 : Math.max(wide + 60, Math.min(300, (room - 40) / Math.max(1, all.length)));
    const beside = down ? wide + 14 : high + 22;
    const where = new Map();
    let y = 16;
    all.forEach((names, at) => {
      names.forEach((name, i) => {
        // Downward, a layer that is too wide has several rows.
        const row = down ? Math.floor(i / fit) : 0;
        const beside_it = down ? Math.min(fit, names.length - row * fit) : names.length;
        const side = (down ? 9 : 16) + (i - row * fit * down + (across - beside_it) / 2) * beside;
        where.set(name, down ? { x: side, y: y + row * (high + 16) } : { x: 16 + at * step, y: side });
      });
      if (down) y += step + (Math.ceil(names.length / fit) - 1) * (high + 16);
    });
    const loops = [...edges.values()].some(edge => edge.loop) ? 34 : 0;
    const width = down ? 4 + across * beside : 40 + (all.length - 1) * step + wide;
    const height = loops + (down ? y - 30 : 14 + across * beside);
    into.textContent = "";
    const svg = make("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group",
                              "aria-label": "The nodes of the run, and the channels between them" }, into);
    const made = { nodes: new Map(), edges: new Map() };
    for (const [key, edge] of edges) {
      const d = path(where.get(edge.from), where.get(edge.to), down, edge.loop);
      const line = make("path", { d, class: edge.loop ? "edge loop" : "edge" }, svg);
      const moving = make("path", { d, class: "moving" }, svg);
      made.edges.set(key, { line, moving, label: make("title", {}, line), loop: edge.loop });
    }
    for (const [key, edge] of made.edges) {  // Above all edges.
      const length = edge.line.getTotalLength();
      const middle = edge.line.getPointAtLength(length * (edge.loop ? 0.5 : 0.78));
      const queue = make("g", { class: "queue", transform: `translate(${middle.x - 13},${middle.y - 4})` }, svg);
      make("rect", { width: 26, height: 8, rx: 2 }, queue);
      edge.full = make("rect", { width: 0, height: 8, rx: 2, class: "full" }, queue);
      edge.queue = queue;
    }
    for (const [name, node] of nodes) {
      const { x, y } = where.get(name);
      const group = make("g", { class: "node", transform: `translate(${x},${y})`, tabindex: 0, role: "button" }, svg);
      make("rect", { class: "box", width: wide, height: high, rx: 8 }, group);
      const title = make("text", { x: 10, y: 20 }, group);
      title.textContent = name.length > 18 ? name.slice(0, 17) + "..." : name;
      const below = make("text", { x: 10, y: 35, class: "small" }, group);
      const bars = parts.map(part => make("rect", { class: part, y: 44, height: 9 }, group));
      const choose = () => { chosen = chosen === name ? "" : name; tell(); };
      group.addEventListener("click", choose);
      group.addEventListener("keydown", pressed => {
        if (pressed.key !== "Enter" && pressed.key !== " ") return;
        pressed.preventDefault();
        choose();
      });
      made.nodes.set(name, { group, below, bars });
    }
    return made;
  }

  const short = number =>
    number >= 1e9 ? (number / 1e9).toFixed(1) + " G" : number >= 1e6 ? (number / 1e6).toFixed(1) + " M"
    : number >= 1e3 ? (number / 1e3).toFixed(1) + " k" : number >= 10 || number === 0 ? number.toFixed(0) : number.toFixed(1);

  function draw(into, state) {
    const { nodes, edges } = merged(state);
    const over = state.state !== "running";
    const down = (into.clientWidth || 800) < 560;
    const now = [...nodes.keys()].join("\n") + "\n\n" + [...edges.keys()].join("\n\n") + (down ? "v" : "h") + Math.round(into.clientWidth / 50);
    if (nodes.size === 0) {
      shape = "";
      into.textContent = over ? "No node ran." : "No node runs yet.";
      return { nodes };
    }
    if (now !== shape) {
      drawn = build(into, nodes, edges, down);
      shape = now;
    }
    const neck = state.bottleneck;
    for (const [name, node] of nodes) {
      const { group, below, bars } = drawn.nodes.get(name);
      const is = !neck.to_node && neck.node === name && neck.cause !== "nothing";
      group.setAttribute("class", "node" + (is ? " neck" : "") + (node.ended ? " ended" : "") + (name === chosen ? " chosen" : ""));
      const rate = Math.max(node.taken_rate, node.given_rate);
      const groups = node.copies > 1 ? `x${node.copies}` : node.processes[0];
      below.textContent = (groups ? groups + "  " : "") + (node.inside ? "in " + node.inside
        : node.ended || over ? short(Math.max(node.taken, node.given)) + " items" : short(rate) + "/s");
      let x = 10;
      parts.forEach((part, i) => {
        const length = Math.max(0, Math.min(1, node[part])) * (wide - 20);
        bars[i].setAttribute("x", x.toFixed(1));
        bars[i].setAttribute("width", length.toFixed(1));
        x += length;
      });
      group.setAttribute("aria-label", `${name}${is ? ", the bottleneck" : ""}: ${short(rate)} items a second, ` +
        `computes ${Math.round(node.work * 100)} percent of the time${node.ended ? ", has ended" : ""}`);
    }
    for (const [key, edge] of edges) {
      const { line, moving, label, full, queue } = drawn.edges.get(key);
      const is = neck.to_node && neck.node === edge.from && neck.to_node === edge.to;
      line.setAttribute("class", "edge" + (is ? " neck" : "") + (edge.loop ? " loop" : ""));
      line.setAttribute("stroke-width", (1.5 + 2.2 * Math.log10(1 + edge.rate / 10)).toFixed(1));
      const moves = edge.rate > 0 && !over;
      moving.style.display = moves ? "" : "none";
      // Faster with the flow, as far as an eye can follow; in few steps, as a change starts anew.
      const speed = moves ? Math.min(5, Math.floor(Math.log10(1 + edge.rate))) : 0;
      if (moving.dataset.speed !== String(speed)) {
        moving.dataset.speed = speed;
        moving.style.animationDuration = 1.6 / (1 + speed) + "s";
      }
      const part = edge.most_waiting > 0 ? Math.min(1, edge.waiting / edge.most_waiting) : 0;
      full.setAttribute("width", (26 * part).toFixed(1));
      queue.style.display = edge.most_waiting > 0 ? "" : "none";
      label.textContent = `${edge.from} to ${edge.to}: ${short(edge.rate)} items/s, ${edge.waiting} waiting`;
    }
    return { nodes, chosen: nodes.get(chosen) };
  }

  return { draw, short, letGo() { chosen = ""; }, onChoice(call) { tell = call; } };
})();
