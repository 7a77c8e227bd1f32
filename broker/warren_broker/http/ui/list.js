// Lists in pages: the API filters, sorts and cuts them, so ten thousand queues are no more work.

import { get } from "./api.js";
import { count, h, replace } from "./dom.js";

const SIZES = [50, 100, 500];
const SIZE = 100;
const kept = new Map();

/**
 * Return a table. columns: {label, cell(row), key, number, when(row)}; one with `when` is left out
 * unless that holds for a row. A column with `key` can be sorted by, `choice` {sort, reverse} says
 * by what it is, `sorted(key)` is called for another choice. `titled`: the page has the label as a
 * heading already.
 */
export function table(label, all, rows, { choice, sorted, empty, titled } = {}) {
  if (rows.length === 0) {
    return h("p", { class: "none" }, empty || "None.");
  }
  const columns = all.filter((one) => !one.when || rows.some(one.when));
  const body = rows.map((row) =>
    h(
      "tr",
      {},
      columns.map((one) => h("td", { class: one.number ? "number" : null }, one.cell(row))),
    ),
  );
  const head = h(
    "tr",
    {},
    columns.map((one) => heading(one, choice, sorted)),
  );
  const caption = h("caption", { class: titled ? "unseen" : null }, label);
  const made = h("table", {}, caption, h("thead", {}, head), h("tbody", {}, body));
  return h("div", { class: "wide", role: "region", "aria-label": label, tabindex: "0" }, made);
}

function heading(column, choice, sorted) {
  const number = column.number ? "number" : null;
  if (!sorted || !column.key) {
    return h("th", { scope: "col", class: number }, column.label);
  }
  const chosen = choice.sort === column.key;
  const order = choice.reverse ? "descending" : "ascending";
  const sign = chosen ? (choice.reverse ? " ▾" : " ▴") : "";
  const button = h(
    "button",
    { type: "button", "data-key": `sort-${column.key}`, on: { click: () => sorted(column.key) } },
    column.label + sign,
  );
  return h("th", { scope: "col", class: number, "aria-sort": chosen ? order : null }, button);
}

/**
 * Add a list to a page. path() and query() say what is asked for; the API cuts it into pages.
 * What was chosen last for `name` is chosen again when the user comes back. `show(items)` returns
 * what is shown of a page instead of the table.
 */
export function listing(view, options) {
  const { name, label, path, columns, query, filter = "name", empty, show } = options;
  const choice = kept.get(name) || { page: 1, size: SIZE, text: "", regex: false };
  kept.set(name, choice);
  const change = (changes) => {
    Object.assign(choice, { page: 1 }, changes);
    view.refresh();
  };
  const sorted = (key) => change({ sort: key, reverse: choice.sort === key && !choice.reverse });
  if (filter) {
    view.add(filterRow(name, filter, choice, change));
  }
  const load = (signal) => loadPage(path(), choice, query ? query() : {}, signal);
  const render = (found) => [
    pager(found, choice, change),
    show ? show(found.items) : table(label, columns, found.items, { choice, sorted, empty }),
  ];
  view.live(load, render);
}

async function loadPage(path, choice, query, signal) {
  const asked = { ...query, page: choice.page, page_size: choice.size, pagination: true };
  if (choice.text) {
    Object.assign(asked, { name: choice.text, use_regex: choice.regex });
  }
  if (choice.sort) {
    Object.assign(asked, { sort: choice.sort, sort_reverse: choice.reverse });
  }
  // What was on the last page may have been deleted: then the page before is shown.
  let found = null;
  try {
    found = await get(path, asked, signal);
  } catch (error) {
    if (choice.page === 1 || !error.message.includes("Page out of range")) {
      throw error;
    }
  }
  if (choice.page === 1 || (found && choice.page <= found.page_count)) {
    return found;
  }
  choice.page = found ? Math.max(1, found.page_count) : 1;
  return loadPage(path, choice, query, signal);
}

function filterRow(name, by, choice, change) {
  const text = h("input", {
    type: "search",
    id: `${name}-filter`,
    value: choice.text,
    on: { input: (event) => change({ text: event.target.value }) },
  });
  const regex = h("input", {
    type: "checkbox",
    id: `${name}-regex`,
    checked: choice.regex,
    on: { change: (event) => change({ regex: event.target.checked }) },
  });
  return h(
    "div",
    { class: "filter" },
    h("label", { for: text.id }, `Filter by ${by}`),
    text,
    regex,
    h("label", { for: regex.id }, "regular expression"),
  );
}

function pager(found, choice, change) {
  const last = Math.max(1, found.page_count);
  const go = (page) => () => change({ page });
  const button = (text, label, page) =>
    h(
      "button",
      {
        type: "button",
        "aria-label": label,
        "data-key": label,
        disabled: page < 1 || page > last,
        on: { click: go(page) },
      },
      text,
    );
  const sizes = h(
    "select",
    {
      "aria-label": "Rows on a page",
      "data-key": "page-size",
      on: { change: (event) => change({ size: Number(event.target.value) }) },
    },
    SIZES.map((one) => h("option", { value: one, selected: one === choice.size }, one)),
  );
  const matching =
    found.filtered_count === found.total_count
      ? count(found.total_count)
      : `${count(found.filtered_count)} of ${count(found.total_count)}`;
  return h(
    "div",
    { class: "pager" },
    button("‹", "Previous page", found.page - 1),
    h(
      "span",
      { class: "where" },
      `page ${count(found.page)} of ${count(last)}, ${matching} in all`,
    ),
    button("›", "Next page", found.page + 1),
    sizes,
  );
}

/** Add options to a list of suggestions, which inputs name by `list`. */
export function suggest(id, texts) {
  const list = document.getElementById(id);
  if (list) {
    replace(
      list,
      texts.map((text) => h("option", { value: text })),
    );
  }
}
