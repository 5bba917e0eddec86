// The pipeline: which IPU works on which micro-batch when, and where it waits.

function pipelineView(report) {
  const { pipeline } = report;
  const stages = card("Stages", "Predicted seconds of one micro-batch (the update: of one weight update).", table([
    { title: "Stage", number: true, value: (s) => s.index },
    { title: "IPU", number: true, value: (s) => s.ipu },
    { title: "Forward", number: true, value: (s) => s.forward, show: (s) => seconds(s.forward) },
    { title: "Backward", number: true, value: (s) => s.backward, show: (s) => seconds(s.backward) },
    { title: "Update", number: true, value: (s) => s.update, show: (s) => seconds(s.update) },
    { title: "Copies", number: true, value: (s) => s.copies, show: (s) => seconds(s.copies) },
    { title: "Work", number: true, value: (s) => s.flops, show: (s) => flops(s.flops) },
    { title: "Of the longest", number: true, value: (s) => s.forward + s.backward, show: (s) => {
      const share = (s.forward + s.backward) / Math.max(...report.stages.map((one) => one.forward + one.backward));
      return [percent(share, 0), meter(share)];
    } },
    { title: "Layers", class: "name", value: (s) => s.layers.length, show: (s) => layersOfStage(s.layers) },
  ], report.stages, { label: "Stages" }).element);
  if (!pipeline) {
    return [card("No pipeline", "This program is in one piece: every replica runs all of it on one IPU. Cut it into stages and the timeline of the pipeline is here."), stages];
  }
  const zoom = { factor: 1 };
  const holder = h("div", { class: "timeline", tabindex: "0", role: "img", "aria-label": `Timeline of ${plural(report.plan.ipus_per_replica, "IPU")}, ${plural(pipeline.micro_batches, "micro-batch", "micro-batches")}, bubble ${percent(pipeline.bubble)}` });
  let width = 0;
  const draw = () => { if (width) holder.replaceChildren(gantt(report, Math.max(320, width) * zoom.factor)); };
  const level = h("span", { class: "count", role: "status" }, "1×");
  const change = (factor) => {
    const middle = (holder.scrollLeft + holder.clientWidth / 2) / holder.scrollWidth;
    zoom.factor = Math.min(64, Math.max(1, factor));
    level.textContent = `${zoom.factor}×`;
    draw();
    holder.scrollLeft = middle * holder.scrollWidth - holder.clientWidth / 2;
  };
  new ResizeObserver(([entry]) => {
    const found = Math.floor(entry.contentRect.width);
    if (found > 0 && found !== width) { width = found; draw(); }
  }).observe(holder);
  const button = (text, act) => h("button", { class: "button", type: "button", onclick: act }, text);
  return [
    card("One weight update of the pipeline", `${capital(pipeline.schedule)} schedule, ${plural(pipeline.micro_batches, "micro-batch", "micro-batches")}${pipeline.shown < pipeline.micro_batches ? `, of which ${pipeline.shown} are shown: the others repeat the middle` : ""}. IPUs wait ${percent(pipeline.bubble)} of the time of the passes on average, while the pipeline fills and drains and where stages differ.`,
      h("div", { class: "tools" }, button("Zoom in", () => change(zoom.factor * 2)), button("Zoom out", () => change(zoom.factor / 2)), button("Whole", () => change(1)), level),
      holder,
      legend([...["forward", "backward", "update"].map((name) => ({ name, colour: `var(--${name})` })), { name: "waiting", colour: "var(--idle)" }])),
    stages];
}

function layersOfStage(layers) {
  if (layers.length < 3) return layers.join(", ") || "–";
  return [`${layers[0]} … ${layers[layers.length - 1]}`, h("span", { class: "sub" }, plural(layers.length, "layer"))];
}

function gantt(report, width) {
  const { spans } = report.pipeline;
  const left = 48, row = 30, gap = 8, top = 4, axis = 24;
  const ipus = report.plan.ipus_per_replica;
  const end = Math.max(...spans.map((span) => span[5])) || 1;
  const height = top + ipus * (row + gap) + axis;
  const x = (time) => left + (width - left - 4) * time / end;
  const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
  for (let ipu = 0; ipu < ipus; ipu += 1) {
    const y = top + ipu * (row + gap);
    picture.append(svg("text", { x: 0, y: y + row / 2 + 4 }, `IPU ${ipu}`),
      svg("rect", { x: left, y, width: width - left - 4, height: row, rx: 4, style: "fill:var(--idle)" }));
  }
  spans.forEach(([ipu, , micro, kind, start, stop], index) => {
    const wide = x(stop) - x(start), y = top + ipu * (row + gap);
    picture.append(svg("rect", { x: x(start), y, width: Math.max(0.4, wide - (wide > 4 ? 1 : 0)), height: row, rx: wide > 8 ? 2 : 0, "data-span": index, style: `fill:var(--${kind})` }));
    if (wide > 18) {
      picture.append(svg("text", { class: "in", x: x(start) + wide / 2, y: y + row / 2 + 3.5, "text-anchor": "middle", style: kind === "backward" ? "fill:#3a2208" : "fill:#fff" }, micro === null ? "U" : micro));
    }
  });
  for (const tick of ticks(end * 1e6).map((value) => value / 1e6)) {
    picture.append(svg("text", { x: x(tick), y: height - 6, "text-anchor": tick ? "middle" : "start" }, seconds(tick)));
  }
  picture.addEventListener("pointermove", (event) => {
    const index = event.target.dataset && event.target.dataset.span;
    if (index === undefined) { hideTip(); return; }
    const [ipu, stage, micro, kind, start, stop] = spans[Number(index)];
    showTip(event, [`${capital(kind)}, stage ${stage} on IPU ${ipu}`, micro === null ? "weight update" : `micro-batch ${micro}`,
      `${seconds(start)} to ${seconds(stop)}, ${seconds(stop - start)}`]);
  });
  picture.addEventListener("pointerleave", hideTip);
  return picture;
}
