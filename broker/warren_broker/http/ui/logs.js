// The audit log, the nodes' latest lines, and which lines they write.

import { at, get, request } from "./api.js";
import { h, shown } from "./dom.js";
import { form, panel } from "./form.js";
import { table } from "./list.js";
import { View } from "./view.js";

const COUNT = 100;
const KINDS = ["", "change", "login", "refusal"];
const LEVELS = ["debug", "info", "warning", "error", "critical"];
const DOCUMENT = (value) => (value === undefined || value === null ? "" : JSON.stringify(value));

/** The audit log of all nodes, the newest first, in pages. */
export function auditPage() {
  const view = new View("Audit log");
  const choice = { kind: "", user: "", contains: "", earlier: [] };
  const change = (changes) => {
    Object.assign(choice, { earlier: [] }, changes);
    view.refresh();
  };
  const columns = [
    { label: "Time", cell: (one) => one.at },
    { label: "Node", cell: (one) => one.node },
    { label: "Kind", cell: (one) => one.kind },
    { label: "User", cell: (one) => one.user },
    { label: "From", cell: (one) => `${one.peer} (${one.door})` },
    { label: "Action", cell: (one) => one.action },
    { label: "Object", cell: (one) => Object.values(one.target || {}).map(shown).join(" ") },
    { label: "Before", cell: (one) => DOCUMENT(one.old) },
    { label: "After", cell: (one) => DOCUMENT(one.new) },
    { label: "Outcome", cell: outcome },
  ];
  view.add(
    h(
      "div",
      { class: "filter" },
      select("Kind", KINDS, (kind) => change({ kind })),
      search("User", (user) => change({ user })),
      search("Contains", (contains) => change({ contains })),
    ),
  );
  const load = (signal) => {
    const { earlier, ...asked } = choice;
    return get("audit", known({ count: COUNT, before: earlier.at(-1), ...asked }), signal);
  };
  view.live(load, (found) => [
    found.missing.length ? h("p", {}, `No answer from ${found.missing.join(", ")}.`) : null,
    table("Records", columns, found.records),
    turner("Newer", choice.earlier.length > 0, () => {
      choice.earlier.pop();
      view.refresh();
    }),
    turner("Older", Boolean(found.next), () => {
      choice.earlier.push(found.next);
      view.refresh();
    }),
  ]);
  return view;
}

/** The latest lines of the nodes' logs, and the level of each category. */
export function logPage() {
  const view = new View("Log");
  const choice = { level: "", contains: "" };
  view.add(
    h(
      "div",
      { class: "filter" },
      select("At least", ["", ...LEVELS], (level) => {
        choice.level = level;
        view.refresh();
      }),
      search("Contains", (contains) => {
        choice.contains = contains;
        view.refresh();
      }),
    ),
  );
  const lines = [
    { label: "Time", cell: (one) => one.at },
    { label: "Node", cell: (one) => one.node },
    { label: "Level", cell: (one) => one.level },
    { label: "Text", cell: (one) => one.text },
  ];
  view.live(
    (signal) => get("log/lines", known({ count: COUNT, ...choice }), signal),
    (found) => table("Latest lines", lines, [...found.lines].reverse()),
  );
  const levels = [
    { label: "Node", cell: (one) => one.node },
    { label: "Category", cell: (one) => one.category },
    { label: "Level", cell: (one) => one.level },
  ];
  view.live((signal) => get("log/levels", {}, signal), (found) => [
    table("Lowest level of lines", levels, found),
  ]);
  const set = form(view, {
    label: "Change a level",
    key: "level",
    tag: "administrator",
    submit: "Set level",
    fields: [
      { name: "category", label: "Category", value: "default", required: true },
      { name: "level", label: "Level", type: "select", options: [...LEVELS, "default"] },
      { name: "node", label: "Node", hint: "none: all nodes" },
    ],
    run: async ({ category, level, node }) => {
      await request("PUT", at("log", "levels", category), { body: { level, node: node || "" } });
      return `Category ${category}: ${level}, until the nodes restart.`;
    },
  });
  view.add(panel("Change a level", set));
  return view;
}

function outcome(one) {
  return [one.outcome || "done", one.detail].filter(Boolean).join(": ");
}

/** Return what of a query is said. */
function known(asked) {
  return Object.fromEntries(Object.entries(asked).filter(([, value]) => value));
}

function select(label, options, chosen) {
  const made = options.map((one) => h("option", { value: one }, one || "any"));
  return h(
    "label",
    {},
    label,
    h("select", { "data-key": label, on: { change: (event) => chosen(event.target.value) } }, made),
  );
}

function search(label, chosen) {
  return h(
    "label",
    {},
    label,
    h("input", {
      type: "search",
      "data-key": label,
      on: { change: (event) => chosen(event.target.value) },
    }),
  );
}

function turner(text, possible, turn) {
  return h(
    "button",
    { type: "button", "data-key": text, disabled: !possible, on: { click: turn } },
    text,
  );
}
