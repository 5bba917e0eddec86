// Charts: stacked bars, curves over tiles or operations, a heat map. Each is an element that says in words what it shows.

// A bar cut into parts: [{name, value, colour, text}]; `whole` is what the full width means.
function stack(parts, total, label) {
  const kept = parts.filter((part) => part.value > 0);
  return h("div", { class: "stack", role: "img", "aria-label": `${label}: ${kept.map((p) => `${p.name} ${p.text}`).join(", ")}` },
    kept.map((part) =>
      h("span", {
        style: `flex:0 0 calc(${(100 * part.value / total).toFixed(3)}% - 1px);background:${part.colour}`,
        onpointermove: (event) => showTip(event, [part.name, part.text]), onpointerleave: hideTip,
      })));
}

const legend = (parts) =>
  h("ul", { class: "legend" }, parts.map((part) => h("li", {}, swatch(part.colour), part.name, part.text ? h("b", {}, part.text) : null)));

// Round numbers between 0 and `highest`, in powers of two where bytes are meant.
function ticks(highest, base = 10) {
  if (!(highest > 0)) return [0];
  const rough = highest / 4;
  const power = base ** Math.floor(Math.log(rough) / Math.log(base));
  const steps = base === 10 ? [1, 2, 2.5, 5, 10] : [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
  const step = power * (steps.find((s) => s * power >= rough) || base);
  return Array.from({ length: Math.floor(highest / step + 1e-9) + 1 }, (_, i) => i * step);
}

// Areas one on top of the other over an index, with a line for a limit, read out by pointer and arrow keys.
function areas({ series, limit = null, label, describe, mark = null, height = 260, axis }) {
  const count = series[0].values.length;
  const sums = Array.from({ length: count }, (_, i) => series.reduce((sum, s) => sum + s.values[i], 0));
  const most = Math.max(...sums, 1);
  // A limit far above all values would leave nothing to see of them.
  let limited = limit !== null && most > 0.25 * limit;
  let highest = 1;
  const readout = h("div", { class: "readout", "aria-live": "polite" });
  const holder = h("div", { class: "chart", tabindex: "0", role: "slider", "aria-label": label, "aria-valuemin": 0,
    "aria-valuemax": count - 1 });
  let at = mark ?? 0, drawn = 0, scrub = null, place = null;

  function draw(width) {
    highest = Math.max(most, limited ? limit : 0) * 1.08;
    const left = 66, right = 8, top = 14, bottom = 24;
    const inner = { width: width - left - right, height: height - top - bottom };
    const y = (value) => top + inner.height * (1 - value / highest);
    const edge = (index) => left + inner.width * index / count;
    place = (index) => edge(index + 0.5);
    const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    for (const tick of ticks(highest, 1024)) {
      picture.append(svg("line", { class: "axis", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }),
        svg("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, bytes(tick)));
    }
    let below = new Array(count).fill(0);
    for (const one of series) {
      const upper = below.map((value, i) => value + one.values[i]);
      // Steps, not slopes: between two tiles or two operations there is nothing.
      const steps = (values) => values.flatMap((value, i) => [[edge(i), y(value)], [edge(i + 1), y(value)]]);
      const shape = [...steps(upper), ...steps(below).reverse()];
      picture.append(svg("polygon", { points: shape.map(([px, py]) => `${px.toFixed(1)},${py.toFixed(1)}`).join(" "), style: `fill:${one.colour}` }));
      below = upper;
    }
    if (limited) {
      picture.append(svg("line", { class: "limit", x1: left, x2: width - right, y1: y(limit), y2: y(limit) }),
        svg("text", { class: "limit-text", x: width - right, y: y(limit) - 6, "text-anchor": "end" }, `limit ${bytes(limit)}`));
    }
    if (mark !== null) {
      const end = place(mark) > width - 90;
      picture.append(svg("circle", { cx: place(mark), cy: y(sums[mark]), r: 4, style: "fill:var(--ink)" }),
        svg("text", { x: place(mark) + (end ? -9 : 9), y: Math.max(11, y(sums[mark]) - 7), "text-anchor": end ? "end" : "start" }, "peak"));
    }
    picture.append(svg("text", { x: left, y: height - 5 }, axis[0]),
      svg("text", { x: width - right, y: height - 5, "text-anchor": "end" }, axis[1]));
    scrub = svg("line", { class: "scrub", y1: top, y2: height - bottom });
    picture.append(scrub);
    holder.replaceChildren(picture);
    drawn = width;
    move(at);
  }
  function move(index) {
    at = Math.max(0, Math.min(count - 1, index));
    if (place) { scrub.setAttribute("x1", place(at)); scrub.setAttribute("x2", place(at)); }
    const lines = describe(at);
    holder.setAttribute("aria-valuenow", at);
    holder.setAttribute("aria-valuetext", lines.join(". "));
    readout.replaceChildren(h("b", {}, lines[0]), ...lines.slice(1).map((line) => h("div", { class: "soft" }, line)));
  }
  holder.addEventListener("pointermove", (event) => {
    const box = holder.getBoundingClientRect();
    move(Math.floor((event.clientX - box.left - 66) / Math.max(1, drawn - 74) * count));
  });
  holder.addEventListener("keydown", (event) => {
    const far = Math.max(1, Math.round(count / 20));
    const step = { ArrowRight: 1, ArrowLeft: -1, PageUp: far, PageDown: -far }[event.key];
    if (step) move(at + step);
    else if (event.key === "Home") move(0);
    else if (event.key === "End") move(count - 1);
    else return;
    event.preventDefault();
  });
  // Drawn when it has a width, and again when that changes.
  new ResizeObserver(([entry]) => {
    const width = Math.floor(entry.contentRect.width);
    if (width > 0 && width !== drawn) draw(width);
  }).observe(holder);
  move(at);
  const toggle = h("button", { class: "button", type: "button", "aria-pressed": String(limited), onclick: () => {
    limited = !limited;
    toggle.setAttribute("aria-pressed", limited);
    if (drawn) draw(drawn);
  } }, "Show the limit");
  return h("div", {}, limit === null ? null : h("div", { class: "tools" }, toggle), holder, readout);
}

// One square a tile, filled as far as the tile's memory is.
function heatMap(values, limit, label) {
  const columns = Math.ceil(Math.sqrt(values.length * 2.4));
  const rows = Math.ceil(values.length / columns);
  const picture = svg("svg", { viewBox: `0 0 ${columns * 10} ${rows * 10}`, role: "img", "aria-label": label, style: "width:100%" });
  const lowest = Math.min(...values), highest = Math.max(...values);
  picture.append(...values.map((value, tile) => {
    // Even tiles differ little: what differs is shown from a quarter to the whole of the colour.
    const share = highest > lowest ? (value - lowest) / (highest - lowest) : 1;
    const over = value > limit;
    const strength = 0.25 + 0.75 * share * Math.min(1, highest / limit + 0.25);
    return svg("rect", { x: (tile % columns) * 10 + 0.5, y: Math.floor(tile / columns) * 10 + 0.5, width: 9, height: 9, rx: 1.5,
      "data-tile": tile, style: `fill:${over ? "var(--bad)" : "var(--c0)"};fill-opacity:${strength.toFixed(3)}` });
  }));
  picture.addEventListener("pointermove", (event) => {
    const tile = event.target.dataset && event.target.dataset.tile;
    if (tile === undefined) { hideTip(); return; }
    const value = values[Number(tile)];
    showTip(event, [`Tile ${tile}`, `${bytes(value)}, ${percent(value / limit, 0)} of its memory`]);
  });
  picture.addEventListener("pointerleave", hideTip);
  return picture;
}
