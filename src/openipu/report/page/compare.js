// Two reports side by side: this one and another, embedded in the page or chosen from a file.

function compareView(report, embedded, onchange) {
  const body = h("div", { class: "view", style: "padding:0", id: "comparison" });
  const message = h("p", { class: "small", role: "status" });
  const input = h("input", { type: "file", accept: ".json,.pop,application/json", id: "other-file", "aria-label": "Another report.json" });
  const show = (other) => {
    body.replaceChildren(...comparison(report, other).filter((part) => part));
    message.textContent = "";
    if (onchange) onchange(other);
  };
  input.addEventListener("change", async () => {
    const [file] = input.files;
    if (!file) return;
    try {
      show(readable(await file.text(), file.name));
    } catch (error) {
      body.replaceChildren();
      message.textContent = error.message;
    }
  });
  if (embedded) show(embedded);
  return [card("Compare with another report", "Choose the report.json of another run: another plan, another target, another version of the model. It stays on this machine.",
    h("div", { class: "tools" }, input), message), body];
}

function readable(text, name) {
  let other;
  try {
    other = JSON.parse(text);
  } catch {
    throw new Error(`${name} is not complete JSON. Was it copied whole?`);
  }
  if (!other || other.format !== report.format) throw new Error(`${name} is not a report of openipu.`);
  if (other.version !== report.version) throw new Error(`${name} has version ${other.version}; this page reads version ${report.version}.`);
  return other;
}

function change(a, b, lowerIsBetter) {
  if (a === null || b === null || a === undefined || b === undefined) return "–";
  if (a === b) return h("span", { class: "soft" }, "same");
  const ratio = a ? b / a - 1 : Infinity;
  const text = Number.isFinite(ratio) ? `${ratio > 0 ? "+" : "−"}${Math.abs(100 * ratio) >= 1000 ? whole(Math.abs(100 * ratio)) : digits(Math.abs(100 * ratio))} %` : "new";
  if (lowerIsBetter === undefined) return text;
  return h("span", { class: (b < a) === lowerIsBetter ? "down" : "up" }, text);
}

function comparison(a, b) {
  const worst = (report) => report.memory.find((one) => one.ipu === report.prediction.worst_ipu) || report.memory[0];
  const rows = [
    ["Target", a.target.name, b.target.name], ["Plan", planWords(a), planWords(b)],
    ["Fits", a.prediction.fits ? "yes" : "no", b.prediction.fits ? "yes" : "no"],
    ["Samples per second", a.prediction.throughput, b.prediction.throughput, throughput, false],
    ["Time per step", a.prediction.seconds_per_step, b.prediction.seconds_per_step, seconds, true],
    ["Time per execution", a.prediction.seconds_per_execution, b.prediction.seconds_per_execution, seconds, true],
    ["Utilisation", a.prediction.utilisation, b.prediction.utilisation, percent, false],
    ["Fullest tile", worst(a).worst_tile, worst(b).worst_tile, bytes, true],
    ["Memory of the fullest IPU", worst(a).total, worst(b).total, bytes, true],
    ["IPUs of the pipeline wait", a.pipeline ? a.pipeline.bubble : null, b.pipeline ? b.pipeline.bubble : null, percent, true],
    ["Operations", a.operations.length, b.operations.length, whole],
    ["Measured: one execution", a.measured && a.measured.typical_seconds, b.measured && b.measured.typical_seconds, seconds, true],
    ["Measured: compilation", a.measured && a.measured.compile_seconds, b.measured && b.measured.compile_seconds, seconds, true],
  ];
  const names = [`A: ${a.program.name}`, `B: ${b.program.name}`];
  const shares = sharesOf(a).map((part, i) => ({ name: part.name, a: part.value, b: sharesOf(b)[i].value }));
  const categories = CATEGORIES.map((name) => ({ name, a: worst(a).categories[name] || 0, b: worst(b).categories[name] || 0 }));
  return [
    card("Side by side", null, h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Side by side" }, h("table", { "aria-label": "Comparison" },
      h("thead", {}, h("tr", {}, ["", ...names, "B against A"].map((text, i) => h("th", { class: `plain-head${i ? " n" : ""}`, scope: "col" }, text)))),
      h("tbody", {}, rows.map(([name, x, y, show, lower]) => h("tr", {}, h("td", {}, name),
        ...(show ? [x, y].map((value) => h("td", { class: "n" }, value === null || value === undefined ? "–" : show(value))) : [x, y].map((value) => h("td", { class: "n", style: "white-space:normal" }, value))),
        h("td", { class: "n" }, show ? change(x, y, lower) : x === y ? h("span", { class: "soft" }, "same") : "differs"))))))),
    h("div", { class: "pair" },
      card("Time of a step", null, twoBars(shares, seconds), legend([{ name: names[0], colour: "var(--c0)" }, { name: names[1], colour: "var(--c9)" }])),
      card("Memory of the fullest IPU", null, twoBars(categories, bytes), legend([{ name: names[0], colour: "var(--c0)" }, { name: names[1], colour: "var(--c9)" }]))),
    layerChanges(a, b)];
}

function twoBars(rows, show) {
  const kept = rows.filter((row) => row.a || row.b);
  const longest = Math.max(...kept.flatMap((row) => [row.a, row.b]), 0) || 1;
  const line = (value, colour) => h("div", { class: "line" }, h("span", { style: `width:${(72 * value / longest).toFixed(2)}%;background:${colour}` }), value ? show(value) : "none");
  return h("div", { class: "ab" }, kept.map((row) => [h("div", { class: "label" }, capital(row.name)), line(row.a, "var(--c0)"), line(row.b, "var(--c9)"), h("div", { class: "gap" })]));
}

function layerChanges(a, b) {
  const times = (report) => {
    const found = new Map();
    for (const operation of report.operations) {
      const layer = operation.layer || "(no layer)";
      found.set(layer, (found.get(layer) || 0) + operationSeconds(report, operation));
    }
    return found;
  };
  const [x, y] = [times(a), times(b)];
  const rows = [...new Set([...x.keys(), ...y.keys()])].map((layer) => ({ layer, a: x.get(layer) ?? null, b: y.get(layer) ?? null }));
  const difference = (row) => (row.b || 0) - (row.a || 0);
  return card("Layers", "Predicted time of one step by layer; the largest differences first.", table([
    { title: "Layer", class: "name", value: (r) => r.layer },
    { title: "A", number: true, value: (r) => r.a ?? 0, show: (r) => (r.a === null ? "–" : seconds(r.a)) },
    { title: "B", number: true, value: (r) => r.b ?? 0, show: (r) => (r.b === null ? "–" : seconds(r.b)) },
    { title: "Difference", number: true, value: (r) => Math.abs(difference(r)), show: (r) => (difference(r) === 0 ? "same" : `${difference(r) > 0 ? "+" : "−"}${seconds(Math.abs(difference(r)))}`) },
    { title: "B against A", number: true, value: (r) => (r.a ? difference(r) / r.a : 0), show: (r) => change(r.a, r.b, true) },
  ], rows, { sort: 3, label: "Layers of both reports" }).element);
}
