// Liveness: how memory that is not always in use comes and goes over the program.

function livenessView(report) {
  const body = h("div", {});
  const show = (index) => body.replaceChildren(livenessOf(report, report.memory[index]));
  const choose = choice("IPU", report.memory.map((one, i) => [i, `IPU ${one.ipu}`]), (value) => show(Number(value)));
  show(0);
  return [report.memory.length > 1 ? h("div", { class: "tools" }, h("label", {}, "IPU of a replica", choose)) : null, body];
}

function livenessOf(report, memory) {
  const always = memory.always_live.reduce((sum, value) => sum + value, 0);
  const values = memory.liveness.map((point) => point[1]);
  if (!values.length) return card("Memory over the program", "The estimate has no liveness of this IPU.");
  const peak = values.indexOf(Math.max(...values));
  const chart = areas({
    series: [{ values: values.map(() => always), colour: "var(--c0)" }, { values, colour: "var(--c9)" }],
    limit: memory.capacity, label: `Memory of IPU ${memory.ipu} over the program`, mark: peak, height: 300, axis: ["first operation", "last operation"],
    describe: (index) => {
      const operation = report.operations[memory.liveness[index][0]];
      return [
        `${operation ? operation.name : "between operations"}: ${bytes(always + values[index])}${index === peak ? ", the peak" : ""}`,
        `not always live ${bytes(values[index])}, always live ${bytes(always)}`,
        operation ? `${operation.phase}, ${operation.kind}, ${operation.dtype}[${operation.shape.join(", ")}]${operation.layer ? `, layer ${operation.layer}` : ""}` : "",
      ];
    },
  });
  return card(`Memory of IPU ${memory.ipu} over the program`,
    `Predicted, over the ${plural(values.length, "operation")} of one micro-batch and the weight update. Point at a moment, or use the arrow keys; Home and End go to the ends.`,
    chart, legend([{ name: "always live", colour: "var(--c0)" }, { name: "not always live", colour: "var(--c9)" }]));
}
