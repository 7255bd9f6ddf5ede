// Findings: what was found, at which lines, and what to do next; many of a kind are folded.

function snippet(run, place, around) {
  const source = run.sources[place.file];
  const lines = [];
  for (const [first, texts] of source ? source.parts : []) {
    texts.forEach((text, i) => {
      if (Math.abs(first + i - place.line) <= around) lines.push([first + i, text]);
    });
  }
  if (!lines.length && place.text) lines.push([place.line, place.text]);
  return el(
    "div",
    { class: "snippet code" },
    lines.map(([number, text]) =>
      el("div", { class: number === place.line ? "row here" : "row" }, el("span", { class: "no" }, number), text),
    ),
  );
}

function placeBlock(run, role, place, around) {
  if (!place) return el("div", { class: "place" }, el("div", { class: "filename" }, `${role}: place unknown`));
  const title = `${role}: ${shortPlace(run, place)}${place.function ? ` in ${place.function}` : ""}`;
  return el("div", { class: "place" }, el("div", { class: "filename" }, title), snippet(run, place, around));
}

const shortPlace = (run, place) => `${(run.sources[place.file] || {}).name || place.file}:${place.line}`;

function findingCard(run, one, note, grouped, rank = "") {
  const who = [one.ranks.length ? rankRanges(one.ranks) : "", one.count > 1 ? `${whole(one.count)} times` : ""]
    .filter(Boolean)
    .join(", ");
  const places = [
    one.where ? placeBlock(run, "here", one.where, 3) : null,
    ...one.others.map((other) => placeBlock(run, other.role, other.where, 1)),
  ];
  return el(
    "div",
    { class: note || rank ? `finding ${rank || "known"}` : "finding" },
    el("div", null, el("span", { class: "kind" }, one.kind), who ? el("span", { class: "quiet" }, `  ${who}`) : null),
    grouped ? null : el("div", { class: "quiet" }, page.kinds[one.kind] || ""),
    note ? el("p", null, el("b", null, "acknowledged: "), note) : null,
    el("pre", { class: "message" }, one.message),
    el("div", { class: "places" }, places),
    one.blame ? el("p", null, el("b", null, blameText(one.blame))) : null,
    one.hint && !note && !(one.blame && one.blame.who === "compiler") ? el("p", null, el("b", null, "next: "), one.hint) : null,
  );
}

const blameText = ({ who, name, mended_in: mended }) =>
  who === "library"
    ? `in a kernel of a library (${name}): its fault, or that of its arguments`
    : `a fault of the ${who} (${name}), not of the program${mended ? `; ${mended} and later do not have it` : ""}`;

// so many are simply shown; of more, the first few of each kind, and the others behind a line of text
const FEW = 5,
  OPEN = 2;

function findingsPart(run) {
  if (run.findings.length <= FEW) return run.findings.map((one) => findingCard(run, one, "", false));
  const kinds = new Map();
  for (const one of run.findings) kinds.set(one.kind, [...(kinds.get(one.kind) || []), one]);
  const parts = [...kinds].map(([kind, found]) => {
    const title = el("h3", { tabindex: -1 }, `${kind}: ${counted(found.length, "finding", "findings")}`);
    return { kind, found, title };
  });
  return [
    kindsOfFindings(run, parts),
    parts.map(({ kind, found, title }) => [
      title,
      el("p", { class: "note" }, page.kinds[kind] || ""),
      found.slice(0, OPEN).map((one) => findingCard(run, one, "", true)),
      found.slice(OPEN).map((one) => foldedFinding(run, one)),
    ]),
  ];
}

function kindsOfFindings(run, parts) {
  const rows = parts.map(({ kind, found, title }) => {
    const go = button(kind, () => {
      title.scrollIntoView();
      title.focus();
    });
    const times = found.reduce((sum, one) => sum + one.count, 0);
    return [go, whole(found.length), whole(times), found[0].where ? shortPlace(run, found[0].where) : ""];
  });
  const heads = [
    ["kind", 0],
    ["places", 1],
    ["times", 1],
    ["first at", 0],
  ];
  return el("div", { class: "scroll" }, table(heads, rows, { class: "tight" }));
}

function foldedFinding(run, one) {
  const place = one.where ? `${shortPlace(run, one.where)}: ` : "";
  return el(
    "details",
    { class: "folded" },
    el("summary", null, `${place}${String(one.message).split("\n")[0]}`),
    findingCard(run, one, "", true),
  );
}

// What breaks the rules and changes no result: one note for each kernel, apart from the findings that count.
function formalPart(run) {
  return run.formal_notes.map(({ kernel, findings }) => [
    run.formal_notes.length > 1 ? el("h3", null, kernel) : null,
    el("p", { class: "note" }, "breaks the rules, and changes no result on hardware that exists"),
    findings.map((one) => findingCard(run, one, "", false, "formal")),
  ]);
}

// Findings that somebody answers for, in the source or in a baseline file; they do not count.
const acknowledgedPart = (run) =>
  run.views.acknowledged.map((row) => findingCard(run, row.finding, `${row.reason} (${row.by})`, false));
