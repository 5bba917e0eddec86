// Puts the page together: the head, the tabs, and each view when it is first looked at.

const report = JSON.parse(document.getElementById("report").textContent);
const other = JSON.parse(document.getElementById("other").textContent);

const VIEWS = [
  ["summary", "Summary", () => summaryView(report)], ["memory", "Memory", () => memoryView(report)],
  ["liveness", "Liveness", () => livenessView(report)], ["operations", "Operations", () => operationsView(report)],
  ["layers", "Layers", () => layersView(report)], ["pipeline", "Pipeline", () => pipelineView(report)],
  ["compare", "Compare", () => compareView(report, other)], ["model", "Model", () => modelView()],
];

function modelView() {
  return [card("The numbers behind the prediction", "What the model of the IPU takes as given, and where it is from. Constants that were fitted name the figures they were fitted on.",
    table([
      { title: "Constant", class: "name", value: (c) => c.name, show: (c) => capital(c.name) },
      { title: "Value", number: true, value: (c) => c.value, show: (c) => `${digits(c.value, 4)} ${c.unit}` },
      { title: "Source", class: "name", value: (c) => c.source },
      { title: "Fitted on", class: "name", value: (c) => c.fitted, show: (c) => c.fitted || "–" },
    ], report.constants, { label: "Constants" }).element)];
}

function theme() {
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const now = document.documentElement.dataset.theme || system;
  document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
}

document.getElementById("head").append(
  h("div", {}, h("h1", {}, report.program.name), h("p", { class: "facts" }, `${report.program.training ? "Training on" : "On"} ${planWords(report)}`)),
  h("div", { class: "side" }, verdict(report), h("button", { class: "icon", type: "button", title: "Light or dark", "aria-label": "Light or dark", onclick: theme }, "◐")));
document.getElementById("foot").append(
  `Made by openipu ${report.made.openipu} on ${report.made.time.replace("T", " ").replace("+00:00", " UTC")}${report.made.command ? ` for ${report.made.command}` : ""}. `,
  "Everything marked predicted comes from a model of the IPU, not from hardware.");

const tabs = document.getElementById("tabs"), content = document.getElementById("content");
const made = new Map();

function open(name) {
  const view = VIEWS.find(([id]) => id === name) || VIEWS[0];
  for (const [id] of VIEWS) {
    const tab = document.getElementById(`tab-${id}`), chosen = id === view[0];
    tab.setAttribute("aria-selected", chosen);
    tab.tabIndex = chosen ? 0 : -1;
    if (chosen) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
    if (made.has(id)) made.get(id).hidden = !chosen;
  }
  if (!made.has(view[0])) {
    const panel = h("div", { class: "view", role: "tabpanel", id: `view-${view[0]}`, "aria-labelledby": `tab-${view[0]}` });
    content.append(panel);
    made.set(view[0], panel);
    build(panel, {}, view[2]());
  }
  hideTip();
}

// At once: the event of a changed address comes later, and keys are faster.
function go(name) {
  open(name);
  location.hash = name;
}

tabs.append(...VIEWS.map(([id, title]) =>
  h("button", { role: "tab", type: "button", id: `tab-${id}`, "aria-controls": `view-${id}`, onclick: () => go(id) }, title)));
tabs.addEventListener("keydown", (event) => {
  const now = VIEWS.findIndex(([id]) => document.getElementById(`tab-${id}`).getAttribute("aria-selected") === "true");
  const next = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: VIEWS.length - 1 }[event.key];
  if (next === undefined) return;
  event.preventDefault();
  const [id] = VIEWS[(next + VIEWS.length) % VIEWS.length];
  go(id);
  document.getElementById(`tab-${id}`).focus();
});
addEventListener("hashchange", () => open(location.hash.slice(1)));
addEventListener("keydown", (event) => {
  if (event.key !== "/" || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  event.preventDefault();
  go("operations");
  document.getElementById("search").focus();
});
open(location.hash.slice(1) || (other ? "compare" : "summary"));
document.documentElement.dataset.ready = "yes";
