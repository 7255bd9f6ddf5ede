// Elements from data: text is only ever set as text, so no name in a run can become markup.

const SVG = "http://www.w3.org/2000/svg";

function dress(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined) continue;
    if (key.startsWith("aria-")) node.setAttribute(key, String(value));
    else if (value === false) continue;
    else if (key === "style") Object.assign(node.style, value);
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

const el = (tag, attributes, ...children) => dress(document.createElement(tag), attributes, children);

function draw(tag, attributes, ...children) {
  const wrong = Object.entries(attributes || {}).find(
    ([, value]) => /NaN|Infinity|undefined/.test(String(value)) && typeof value !== "function",
  );
  if (wrong) throw new Error(`the ${wrong[0]} of a ${tag} would be ${wrong[1]}`);
  return dress(document.createElementNS(SVG, tag), attributes, children);
}

// What is drawn anew may change its size again: it waits for the next frame.
const onResize = (node, action) => new ResizeObserver(() => requestAnimationFrame(action)).observe(node);

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A table: columns are [heading, whether it holds numbers]; cells are texts or elements.
function table(columns, rows, attributes) {
  const head = columns.map(([name, number]) => el("th", { scope: "col", class: number ? "n" : null }, name));
  const body = rows.map((row) =>
    el(
      "tr",
      null,
      row.map((cell, i) => el("td", { class: columns[i][1] ? "n" : null }, cell)),
    ),
  );
  return el("table", attributes, el("thead", null, el("tr", null, head)), el("tbody", null, body));
}

const meter = (share) =>
  el("span", { class: "meter" }, el("i", { style: { width: `${100 * Math.max(0, Math.min(1, share))}%` } }));

const button = (name, action, attributes) => el("button", { type: "button", onclick: action, ...attributes }, name);

function choice(label, options, action) {
  const select = el(
    "select",
    { onchange: () => action(select.value) },
    options.map(([value, name]) => el("option", { value }, name)),
  );
  return el("label", null, label, select);
}

// A part of a run that cannot be drawn says so and leaves the others alone.
function section(title, id, fill) {
  const part = el("section", { id, "aria-label": title }, el("h2", null, title));
  try {
    const made = fill(part);
    if (made) part.append(...[made].flat(Infinity).filter(Boolean));
  } catch (error) {
    part.append(el("p", { class: "bad" }, `This part cannot be drawn: ${error.message}`));
    page.problems.push(`${title}: ${error.stack || error}`);
  }
  return part;
}
