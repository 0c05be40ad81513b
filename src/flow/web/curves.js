// Time lines: a curve of the last minutes, its highest value at the top.
"use strict";

const curves = (() => {
  const space = "http://www.w3.org/2000/svg";
  const most = 600;
  const points = [];  // [seconds, items/s, bytes/s, seconds in queues, cores, bytes of memory]

  function add(point) {
    points.push(point);
    if (points.length > most) points.shift();
  }

  function start(all) {
    points.length = 0;
    for (const each of all) add(each);
  }

  function draw(svg, column, text) {
    const width = 300, height = 90, top = 14;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("preserveAspectRatio", "none");
    const values = points.map(each => each[column]);
    const highest = Math.max(...values, 0);
    const last = values.length ? values[values.length - 1] : 0;
    svg.setAttribute("aria-label", `now ${text(last)}, at most ${text(highest)}`);
    const from = points.length ? points[0][0] : 0;
    const span = Math.max(10, points.length ? points[points.length - 1][0] - from : 0);
    const at = values.map((value, i) =>
      `${((points[i][0] - from) / span * width).toFixed(1)},${(height - 2 - (highest > 0 ? value / highest : 0) * (height - top)).toFixed(1)}`);
    const line = at.length ? "M" + at.join(" L") : "";
    for (const [name, d] of [["under", line && `${line} L${at[at.length - 1].split(",")[0]},${height} L0,${height} Z`], ["", line]]) {
      let path = svg.querySelector(name ? "path.under" : "path:not(.under)");
      if (!path) {
        path = document.createElementNS(space, "path");
        path.setAttribute("class", name);
        svg.append(path);
      }
      path.setAttribute("d", d);
    }
    return text(last);
  }

  return { add, start, draw };
})();
