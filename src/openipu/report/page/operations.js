// Every operation: sorted by any column, searched by name, layer or kind.

function operationsView(report) {
  const rows = report.operations.map((operation, index) => ({
    ...operation, index, seconds: operationSeconds(report, operation),
    text: `${operation.name} ${operation.layer} ${operation.kind} ${operation.phase} ${operation.dtype}`.toLowerCase(),
  }));
  const total = rows.reduce((sum, row) => sum + row.seconds, 0) || 1;
  const longest = Math.max(...rows.map((row) => row.seconds), 0) || 1;
  const peak = report.target.peak_flops;
  const stages = report.plan.stages > 1;
  const shown = table([
    { title: "#", number: true, value: (r) => r.index },
    { title: "Operation", class: "name", value: (r) => r.name, show: (r) => [shortName(r), h("span", { class: "sub" }, r.layer || "no layer")] },
    { title: "Time", number: true, value: (r) => r.seconds, show: (r) => [seconds(r.seconds), meter(r.seconds / longest)] },
    { title: "Share", number: true, value: (r) => r.seconds, show: (r) => percent(r.seconds / total) },
    { title: "Kind", value: (r) => r.kind, show: (r) => h("span", { class: "tag" }, r.kind) },
    { title: "Pass", value: (r) => r.phase, show: (r) => [r.phase, r.recomputed ? h("span", { class: "sub", title: "computed again in the backward pass" }, "runs twice") : null] },
    ...(stages ? [{ title: "Stage", number: true, value: (r) => r.stage }] : []),
    { title: "Cycles", number: true, value: (r) => r.cycles * r.count, show: (r) => whole(r.cycles * r.count) },
    { title: "Exchange", number: true, value: (r) => r.exchange_cycles / (r.cycles || 1), show: (r) => percent(r.exchange_cycles / (r.cycles || 1), 0) },
    { title: "Work", number: true, value: (r) => r.flops * r.count, show: (r) => flops(r.flops * r.count) },
    { title: "Of peak", number: true, value: (r) => (r.flops ? r.flops / r.cycles : 0), show: (r) => (r.flops ? percent(r.flops / r.cycles * report.target.clock_hz / peak) : "–") },
    { title: "Data", number: true, value: (r) => r.bytes, show: (r) => bytes(r.bytes) },
    { title: "Temporaries", number: true, value: (r) => r.temporary_bytes, show: (r) => bytes(r.temporary_bytes) },
    { title: "Code", number: true, value: (r) => r.code_bytes, show: (r) => bytes(r.code_bytes) },
    { title: "Result", value: (r) => r.dtype, show: (r) => h("span", { class: "mono" }, `${r.dtype}[${r.shape.join(",")}]`) },
  ], rows, { sort: 2, label: "Operations" });

  const wanted = { text: "", phase: "", kind: "" };
  const count = h("span", { class: "count", role: "status" });
  function filter() {
    const terms = wanted.text.toLowerCase().split(/\s+/).filter((term) => term);
    const found = rows.filter((row) => terms.every((term) => row.text.includes(term)) &&
      (!wanted.phase || row.phase === wanted.phase) && (!wanted.kind || row.kind === wanted.kind));
    const time = found.reduce((sum, row) => sum + row.seconds, 0);
    count.textContent = `${whole(found.length)} of ${plural(rows.length, "operation")}, ${seconds(time)} (${percent(time / total)})`;
    shown.update(found);
  }
  const search = h("input", { type: "search", placeholder: "Search name, layer, kind", "aria-label": "Search operations", id: "search",
    oninput: () => { wanted.text = search.value; filter(); } });
  const all = (key) => [...new Set(rows.map((row) => row[key]))].sort().map((value) => [value, value]);
  filter();
  return [card("Operations", "Predicted for one replica and one step; what runs once a weight update is shared by its steps. Headings sort.",
    h("div", { class: "tools" }, h("div", { class: "grow" }, search),
      h("label", {}, "Pass", choice("Pass", [["", "all"], ...all("phase")], (value) => { wanted.phase = value; filter(); })),
      h("label", {}, "Kind", choice("Kind", [["", "all"], ...all("kind")], (value) => { wanted.kind = value; filter(); })),
      count),
    shown.element)];
}
