// The first view: does it fit, how fast would it be, where does the time go, and what was measured here.

const SHARES = [
  ["compute", "compute", "var(--c0)"], ["exchange", "exchange between tiles", "var(--c5)"],
  ["stage_copies", "copies between stages", "var(--c7)"], ["update", "weight update", "var(--update)"],
  ["replica_exchange", "exchange between replicas", "var(--c1)"], ["streaming", "streaming memory", "var(--c4)"],
  ["host", "host input and output", "var(--c2)"], ["launch", "launch", "var(--c8)"], ["bubble", "filling and draining the pipeline", "var(--c3)"],
];
const CATEGORY_COLOURS = {
  "weights": "var(--c0)", "optimizer state": "var(--c1)", "gradient accumulators": "var(--c2)", "stashed activations": "var(--c5)",
  "temporaries": "var(--c9)", "code and vertex state": "var(--c7)", "exchange code": "var(--c4)",
  "input and output buffers": "var(--c6)", "constants": "var(--c8)", "other state": "var(--c3)",
};
const CATEGORIES = Object.keys(CATEGORY_COLOURS);
const categoryColour = (name) => CATEGORY_COLOURS[name] || "var(--faint)";

function sharesOf(report) {
  const { shares } = report.prediction;
  const total = Object.values(shares).reduce((sum, value) => sum + value, 0);
  return SHARES.map(([key, name, colour]) =>
    ({ key, name, colour, value: shares[key] || 0, share: total ? (shares[key] || 0) / total : 0, text: `${percent(total ? (shares[key] || 0) / total : 0)} · ${seconds(shares[key])}` }));
}

const categoriesOf = (memory) =>
  Object.entries(memory.categories).map(([name, value]) => ({ name, value, colour: categoryColour(name), text: bytes(value) }))
    .sort((a, b) => CATEGORIES.indexOf(a.name) - CATEGORIES.indexOf(b.name));

// Seconds an operation takes in one step; what runs once an update is shared by the update's steps.
function operationSeconds(report, operation) {
  const runs = operation.count * (operation.recomputed ? 2 : 1);
  const each = runs * operation.cycles / report.target.clock_hz;
  return operation.phase === "update" ? each / report.plan.gradient_accumulation : each;
}

// An operation's name without the layer it is shown with.
const shortName = (operation) =>
  (operation.layer && operation.name.startsWith(`${operation.layer}/`) ? operation.name.slice(operation.layer.length + 1) : operation.name);

function planWords(report) {
  const { plan, program } = report;
  return [
    plural(plan.ipus, `${capital(report.target.name)} IPU`),
    plan.replicas > 1 ? plural(plan.replicas, "replica") : null,
    plan.stages > 1 ? `${plural(plan.stages, "pipeline stage")}, ${plan.schedule}` : null,
    program.micro_batch ? `micro-batch ${whole(program.micro_batch)}` : null,
    plan.gradient_accumulation > 1 ? `accumulation ${whole(plan.gradient_accumulation)}` : null,
  ].filter((word) => word).join(" · ");
}

function verdict(report) {
  const { prediction } = report;
  return prediction.fits
    ? h("span", { class: "chip good" }, "Fits in memory")
    : h("span", { class: "chip bad" }, `Does not fit: ${bytes(prediction.overflow_bytes)} per tile too much`);
}

function summaryView(report) {
  const { prediction, target, plan, measured } = report;
  const worst = report.memory.find((one) => one.ipu === prediction.worst_ipu) || report.memory[0];
  const figures = h("div", { class: "figures" },
    figure("Throughput", throughput(prediction.throughput), `samples per second on ${plural(plan.ipus, "IPU")}`),
    figure("Time per step", seconds(prediction.seconds_per_step), plan.replicas > 1 ? "a micro-batch on every replica" : "one micro-batch"),
    figure("Fullest tile", percent(worst.worst_tile / worst.limit, 0), `${bytes(worst.worst_tile)} of ${bytes(worst.limit)}, IPU ${worst.ipu}`),
    figure("Utilisation", percent(prediction.utilisation), `of ${rate(target.peak_flops * plan.ipus_per_replica)} in float16`),
    measured && figure("Time per execution", seconds(measured.typical_seconds), `${plural(plan.device_iterations, "step")}, ${plural(measured.executions, "execution")}`, "measured"),
    measured && figure("Compile time", seconds(measured.compile_seconds), "on this machine", "measured"));

  const notices = [];
  if (!prediction.fits) {
    notices.push(h("div", { class: "notice bad", role: "alert" }, h("b", {}, "A real IPU would run out of memory. "),
      `The fullest tile of IPU ${worst.ipu} needs ${bytes(worst.worst_tile)}; it has ${bytes(worst.limit)}.`));
  }
  const shares = sharesOf(report);
  const time = card("Where the time of a step goes", `Predicted: ${seconds(prediction.seconds_per_step)} for one micro-batch on every replica.`,
    stack(shares, shares.reduce((sum, part) => sum + part.value, 0), "Time of a step"), legend(shares.filter((part) => part.value > 0)));

  const used = new Set(report.memory.flatMap((one) => Object.entries(one.categories).filter(([, v]) => v > 0).map(([name]) => name)));
  const widest = Math.max(...report.memory.map((one) => Math.max(one.total, one.capacity)));
  const memory = card("Memory of each IPU", `Predicted, of one replica. The line is what an IPU has, ${bytes(target.memory)}.`,
    h("div", { class: "rows" }, report.memory.map((one) =>
      h("div", { class: "bar-row" }, h("span", {}, `IPU ${one.ipu}`),
        h("div", { class: "track" }, stack(categoriesOf(one), widest, `Memory of IPU ${one.ipu}`),
          h("i", { style: `left:${(100 * one.capacity / widest).toFixed(2)}%` })),
        h("span", { class: "end" }, `${bytes(one.total)}, ${percent(one.total / one.capacity, 0)}`)))),
    legend([...CATEGORIES.filter((name) => used.has(name))].map((name) => ({ name, colour: categoryColour(name) }))));

  return [figures, notices, report.suggestions.length ? suggestionsCard(report) : null, time, memory,
    h("div", { class: "pair" }, topCard(report, "Slowest operations", (o) => operationSeconds(report, o), seconds),
      topCard(report, "Operations that need most memory", (o) => o.temporary_bytes + o.bytes, bytes, "Operands, results and temporaries while it runs.")),
    h("div", { class: "pair" }, planCard(report), besideCard(report)),
    report.warnings.length ? card("What this leaves out", null, h("ul", { class: "plain small" }, report.warnings.map((text) => h("li", {}, text)))) : null];
}

function suggestionsCard(report) {
  return card("What would help", "Predicted effect of each change alone; time is that of the samples of one step.",
    table([
      { title: "Change", value: (s) => s.option, class: "name", show: (s) => [capital(s.option), h("span", { class: "sub mono" }, s.how)] },
      { title: "Memory", number: true, value: (s) => -s.saves, show: (s) => `${s.saves >= 0 ? "−" : "+"}${bytes(Math.abs(s.saves))}` },
      { title: "Time", number: true, value: (s) => s.seconds, show: (s) => s.seconds === null ? "not predicted" : `${s.seconds >= 0 ? "+" : "−"}${seconds(Math.abs(s.seconds))}` },
      { title: "Fits then", value: (s) => Number(s.fits), show: (s) => (s.fits ? h("span", { class: "chip good" }, "yes") : "no") },
    ], report.suggestions, { label: "Suggestions" }).element);
}

function topCard(report, title, value, show, lead) {
  const top = [...report.operations].sort((a, b) => value(b) - value(a)).slice(0, 10).filter((o) => value(o) > 0);
  const highest = top.length ? value(top[0]) : 1;
  return card(title, lead || "Predicted, for one step of one replica.", h("table", { "aria-label": title, class: "top" },
    h("tbody", {}, top.map((o) => h("tr", {}, h("td", { class: "name" }, `${shortName(o)}, ${o.phase}`, h("span", { class: "sub" }, o.layer || o.kind)),
      h("td", { class: "n" }, show(value(o)), meter(value(o) / highest)))))));
}

function planCard(report) {
  const { plan, target, program, options } = report;
  const set = Object.entries(options).filter(([name, value]) => name !== "engine" && value !== null && value !== false && value !== 0 && !(Array.isArray(value) && !value.length));
  return card("Plan and target", null, facts([
    ["Program", `${program.name}${program.training ? ", training" : ""}`],
    ["Target", `${capital(target.name)} (${target.architecture}), ${whole(target.tiles)} tiles of ${bytes(target.bytes_per_tile)}, ${digits(target.clock_hz / 1e9, 4)} GHz`],
    ["IPUs", `${plan.ipus}: ${plural(plan.replicas, "replica")} of ${plural(plan.ipus_per_replica, "IPU")}`],
    plan.schedule && ["Pipeline", `${plural(plan.stages, "stage")}, ${plan.schedule}`],
    ["Micro-batch", program.micro_batch === null ? "–" : plural(program.micro_batch, "sample")],
    ["Gradient accumulation", whole(plan.gradient_accumulation)],
    ["Steps per execution", whole(plan.device_iterations)],
    ["Work of a step", `${flops(report.prediction.flops_per_step)} on each replica`],
    ["Inputs", program.inputs.map((i) => `${i.name} ${i.dtype}[${i.shape.join(", ")}]`).join("; ") || "–"],
    set.length && ["Options", set.map(([name, value]) => `${words(name)} ${value === true ? "" : Array.isArray(value) ? JSON.stringify(value) : value}`.trim()).join("; ")],
    Object.keys(options.engine).length && ["Engine options", Object.entries(options.engine).map(([k, v]) => `${k}=${v}`).join("; ")],
  ]));
}

function besideCard(report) {
  const { prediction, measured, plan } = report;
  const lead = "The left column is a model of an IPU; the right one is this machine, which is none. They stand side by side so that nobody mixes them up.";
  const row = (name, a, b) => h("tr", {}, h("td", {}, name), h("td", { class: "n" }, a), h("td", { class: "n" }, b));
  return card("Predicted and measured", lead, h("table", { "aria-label": "Predicted and measured", class: "top" },
    h("thead", {}, h("tr", {}, h("th", { class: "plain-head", scope: "col" }, ""), h("th", { class: "plain-head n", scope: "col" }, h("span", { class: "kind predicted" }, `${report.target.name}, predicted`)),
      h("th", { class: "plain-head n", scope: "col" }, h("span", { class: "kind measured" }, "measured here")))),
    h("tbody", {},
      row("One execution", seconds(prediction.seconds_per_execution), measured ? seconds(measured.typical_seconds) : "not run"),
      row("One step", seconds(prediction.seconds_per_step), measured && measured.typical_seconds ? seconds(measured.typical_seconds / plan.device_iterations) : "–"),
      row("Samples per second", throughput(prediction.throughput), measured ? throughput(measured.throughput) : "–"),
      row("Compilation", "–", measured ? seconds(measured.compile_seconds) : "–"))),
    measured ? h("p", { class: "small soft", style: "margin-top:12px" }, `Measured on ${measured.machine.processor}, ${plural(measured.machine.cores, "core")}, ${measured.machine.system}; the median of ${plural(measured.executions, "execution")}${measured.executions > 1 ? " without the first" : ""}.`) : null);
}
