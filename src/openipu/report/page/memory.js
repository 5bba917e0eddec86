// Memory: by category, over the tiles, and by layer, for one IPU at a time.

function memoryView(report) {
  const body = h("div", { class: "view", style: "padding:0" });
  const show = (index) => body.replaceChildren(...memoryOf(report, report.memory[index]));
  const worst = Math.max(0, report.memory.findIndex((one) => one.ipu === report.prediction.worst_ipu));
  const choose = choice("IPU", report.memory.map((one, i) => [i, `IPU ${one.ipu}${i === worst && report.memory.length > 1 ? " (fullest)" : ""}`]), (value) => show(Number(value)));
  choose.value = worst;
  show(worst);
  return [report.memory.length > 1 ? h("div", { class: "tools" }, h("label", {}, "IPU of a replica", choose)) : null, body];
}

function memoryOf(report, memory) {
  const parts = categoriesOf(memory).filter((part) => part.value > 0);
  const tiles = memory.always_live.map((value, i) => value + memory.temporaries[i]);
  const mean = tiles.reduce((sum, value) => sum + value, 0) / tiles.length;
  const worst = tiles.indexOf(Math.max(...tiles));
  const widest = Math.max(memory.total, memory.capacity);
  return [
    card(`Memory of IPU ${memory.ipu} by category`, `Predicted: ${bytes(memory.total)} of ${bytes(memory.capacity)}, between ${bytes(memory.low)} and ${bytes(memory.high)} depending on how matrix products are planned.${memory.streaming ? ` Another ${bytes(memory.streaming)} is in streaming memory.` : ""}`,
      h("div", { class: "track" }, stack(parts, widest, "Memory by category"), h("i", { style: `left:${(100 * memory.capacity / widest).toFixed(2)}%` })),
      h("div", { style: "height:14px" }),
      table([
        { title: "Category", value: (p) => p.name, show: (p) => [swatch(p.colour), " ", capital(p.name)] },
        { title: "Bytes", number: true, value: (p) => p.value, show: (p) => p.text },
        { title: "Of the IPU", number: true, value: (p) => p.value, show: (p) => [percent(p.value / memory.capacity), meter(p.value / memory.capacity)] },
      ], parts, { sort: 1, label: "Memory by category" }).element),
    card("Memory over the tiles", `The fullest tile, ${worst}, needs ${bytes(tiles[worst])}; the mean is ${bytes(mean)}. Point at the curve, or use the arrow keys.`,
      areas({
        series: [{ values: memory.always_live, colour: "var(--c0)" }, { values: memory.temporaries, colour: "var(--c9)" }],
        limit: memory.limit, label: "Memory of each tile", mark: worst, height: 230, axis: ["tile 0", `tile ${tiles.length - 1}`],
        describe: (tile) => [`Tile ${tile}: ${bytes(tiles[tile])}, ${percent(tiles[tile] / memory.limit)} of its memory`,
          `always live ${bytes(memory.always_live[tile])}`, `temporaries ${bytes(memory.temporaries[tile])}`],
      }),
      legend([{ name: "always live", colour: "var(--c0)" }, { name: "temporaries at the worst moment", colour: "var(--c9)" }])),
    card("Tiles as a map", `Each square is a tile; the stronger, the fuller: from ${bytes(Math.min(...tiles))} to ${bytes(Math.max(...tiles))}. Red ones overflow.`,
      heatMap(tiles, memory.limit, `Memory of ${tiles.length} tiles, from ${bytes(Math.min(...tiles))} to ${bytes(Math.max(...tiles))}`)),
    contributorsCard(memory),
  ];
}

function contributorsCard(memory) {
  const rows = memory.contributors.map((one) => ({ layer: one.layer || "(no layer)", total: Object.values(one.bytes).reduce((a, b) => a + b, 0), bytes: one.bytes }));
  const largest = Math.max(...rows.map((row) => row.total), 1);
  const names = CATEGORIES.filter((name) => rows.some((row) => row.bytes[name]));
  return card("Memory by layer", "What each layer takes at the worst moment of the program.",
    table([
      { title: "Layer", class: "name", value: (r) => r.layer },
      { title: "Total", number: true, value: (r) => r.total, show: (r) => [bytes(r.total), meter(r.total / largest)] },
      ...names.map((name) => ({ title: capital(name), number: true, value: (r) => r.bytes[name] || 0, show: (r) => (r.bytes[name] ? bytes(r.bytes[name]) : "–") })),
    ], rows, { sort: 1, label: "Memory by layer" }).element);
}
