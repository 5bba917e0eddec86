// The program as a tree of layers: what each part of the model costs.

function layerTree(report) {
  const root = { name: "", children: new Map(), operations: [], seconds: 0, flops: 0, count: 0, phases: { forward: 0, backward: 0, update: 0 } };
  for (const operation of report.operations) {
    const time = operationSeconds(report, operation);
    let node = root;
    const add = () => {
      node.seconds += time; node.flops += operation.flops * operation.count; node.count += 1; node.phases[operation.phase] += time;
    };
    add();
    for (const part of operation.layer ? operation.layer.split("/") : ["(no layer)"]) {
      if (!node.children.has(part)) {
        node.children.set(part, { name: part, children: new Map(), operations: [], seconds: 0, flops: 0, count: 0, phases: { forward: 0, backward: 0, update: 0 } });
      }
      node = node.children.get(part);
      add();
    }
    node.operations.push(operation);
  }
  return root;
}

function layersView(report) {
  const root = layerTree(report);
  const total = root.seconds || 1;
  const cells = (label, time, phases, work, count) => [
    h("span", { class: "label" }, label), h("span", { class: "n" }, seconds(time)),
    h("span", { role: "img", "aria-label": percent(time / total) }, phases ? split3(phases, total) : meter(time / total)),
    h("span", { class: "n wide" }, percent(time / total)), h("span", { class: "n wide" }, work ? flops(work) : count || "–")];

  function node(one) {
    const summary = h("summary", {}, cells(one.name, one.seconds, one.phases, one.flops, null));
    const inside = h("div", {});
    const details = h("details", {}, summary, inside);
    let filled = false;
    // Children are made when they are looked at: a large model has thousands.
    const fill = () => {
      if (filled) return;
      filled = true;
      inside.append(...[...one.children.values()].map(node), ...one.operations.map((operation) =>
        h("div", { class: "leaf" }, cells([operation.name.split("/").pop(), " ", h("span", { class: "tag" }, operation.phase)],
          operationSeconds(report, operation), null, operation.flops * operation.count, null))));
    };
    details.addEventListener("toggle", () => { if (details.open) fill(); });
    details.fill = fill;
    return details;
  }
  function split3(phases, whole_) {
    const parts = ["forward", "backward", "update"].map((name) => h("span", { style: `display:block;flex:none;height:100%;width:${(100 * phases[name] / whole_).toFixed(2)}%;background:var(--${name})` }));
    return h("span", { class: "meter", style: "display:flex;width:100%;margin:0" }, parts);
  }
  const tops = [...root.children.values()].map(node);
  const tree = h("div", { class: "tree" }, h("div", { class: "leaf head" }, h("span", { class: "label" }, "Layer"), h("span", { class: "n" }, "Time"), h("span", {}, "Passes"), h("span", { class: "n wide" }, "Share"), h("span", { class: "n wide" }, "Work")), tops);
  function all(open) {
    // Opened level by level, because children appear only then; leaves of a large model stay closed.
    let level = tops;
    while (level.length) {
      const next = [];
      for (const details of level) {
        if (open) details.fill();
        const children = [...details.querySelectorAll(":scope > div > details")];
        if (!open || children.length) details.open = open;
        next.push(...children);
      }
      level = next;
    }
  }
  if (tops.length === 1) { tops[0].fill(); tops[0].open = true; }
  return [card("Program by layer", `Predicted time of one step, ${plural(root.count, "operation")}. Enter or space opens a layer.`,
    h("div", { class: "tools" }, h("button", { class: "button", type: "button", onclick: () => all(true) }, "Open all layers"),
      h("button", { class: "button", type: "button", onclick: () => all(false) }, "Close all")), tree,
    legend(["forward", "backward", "update"].map((name) => ({ name, colour: `var(--${name})` }))))];
}
