// Elements, tables and the tip: the few parts that all views are made of.

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") element.style.cssText = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

const h = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  build(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

const swatch = (colour) => h("span", { class: "swatch", style: `background:${colour}` });
const card = (title, lead, ...content) =>
  h("section", { class: "card" }, h("h2", {}, title), lead ? h("p", { class: "lead" }, lead) : null, content);
const facts = (pairs) => h("dl", {}, pairs.filter((p) => p).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

function figure(name, text, note, kind = "predicted") {
  const [number, unit] = split(text);
  return h("div", { class: `figure ${kind}` },
    h("span", { class: `kind ${kind}` }, kind === "measured" ? "measured here" : "predicted"),
    h("span", { class: "name" }, name),
    h("span", { class: "value" }, number, unit ? [" ", h("small", {}, unit)] : null),
    h("span", { class: "note" }, note || "\u00a0"));
}

// What a chart says about the thing under the pointer. One element, moved around.
const tip = document.getElementById("tip");
function showTip(event, lines) {
  tip.replaceChildren(...lines.map((line, i) => h("div", i ? {} : { style: "font-weight:600" }, line)));
  tip.hidden = false;
  const room = tip.getBoundingClientRect();
  const left = Math.min(event.clientX + 14, innerWidth - room.width - 8);
  const above = event.clientY + 18 + room.height > innerHeight;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${above ? event.clientY - room.height - 12 : event.clientY + 18}px`;
}
const hideTip = () => { tip.hidden = true; };

// A table whose headings sort it. Columns: title, value (for sorting), show (for reading), number, class.
const PAGE_SIZE = 200;
function table(columns, rows, { sort = null, descending = true, label = "" } = {}) {
  let order = { column: sort, descending };
  let shown = PAGE_SIZE, current = rows;
  const body = h("tbody", {});
  const more = h("div", { class: "more" });
  const heads = columns.map((column, index) =>
    h("th", { class: column.number ? "n" : null, scope: "col" },
      h("button", { type: "button", onclick: () => by(index) }, column.title)));
  const element = h("div", {},
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
      h("table", { "aria-label": label }, h("thead", {}, h("tr", {}, heads)), body)), more);

  function by(index) {
    const numeric = columns[index].number;
    order = order.column === index
      ? { column: index, descending: !order.descending }
      : { column: index, descending: Boolean(numeric) };
    draw();
  }
  function sorted() {
    if (order.column === null) return current;
    const { value } = columns[order.column];
    const sign = order.descending ? -1 : 1;
    return current.map((row, i) => [value(row), i, row]).sort((a, b) => {
      const [x, y] = [a[0], b[0]];
      if (x === y) return a[1] - b[1];
      if (typeof x === "string") return sign * x.localeCompare(y, "en", { numeric: true });
      return sign * ((x ?? -Infinity) - (y ?? -Infinity));
    }).map((item) => item[2]);
  }
  function draw() {
    heads.forEach((head, index) => {
      if (order.column === index) head.setAttribute("aria-sort", order.descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    const all = sorted();
    body.replaceChildren(...all.slice(0, shown).map((row) =>
      h("tr", {}, columns.map((column) =>
        h("td", { class: [column.number ? "n" : "", column.class || ""].join(" ").trim() || null },
          column.show ? column.show(row) : column.value(row))))));
    if (!all.length) body.append(h("tr", {}, h("td", { colspan: columns.length, class: "soft" }, "Nothing matches.")));
    more.replaceChildren();
    if (all.length > shown) {
      more.append(h("button", { class: "button", type: "button", onclick: () => { shown += 5 * PAGE_SIZE; draw(); } },
        `Show more (${whole(shown)} of ${whole(all.length)})`));
    }
  }
  draw();
  return { element, update(chosen) { current = chosen; shown = PAGE_SIZE; draw(); } };
}

const meter = (share) =>
  h("span", { class: "meter", "aria-hidden": "true" },
    h("span", { style: `width:${(100 * Math.min(1, Math.max(0, share || 0))).toFixed(1)}%` }));

function choice(label, options, change) {
  const select = h("select", { "aria-label": label, onchange: () => change(select.value) },
    options.map(([value, text]) => h("option", { value }, text)));
  return select;
}
