// One box that finds queues, exchanges, connections, users, vhosts, policies and nodes by name.

import { at, exchangeName, get } from "./api.js";
import { count, h, link, page, replace } from "./dom.js";

const SHOWN = 6;
const PAUSE_MS = 200;
/** What is searched: title, path of the API, and the address of what was found. */
const KINDS = [
  ["Queues", "queues", (one) => page("queues", one.vhost, one.name)],
  ["Exchanges", "exchanges", (one) => page("exchanges", one.vhost, exchangeName(one.name))],
  ["Connections", "connections", (one) => page("connections", one.name)],
  ["Users", "users", (one) => page("users", one.name)],
  ["Vhosts", "vhosts", (one) => page("vhosts", one.name)],
  ["Policies", "policies", () => page("policies")],
  ["Nodes", "nodes", (one) => page("nodes", one.name)],
];

/** Return the box with the place of what it finds. */
export function searchBox() {
  const found = h("div", { class: "found", hidden: true, role: "region", "aria-label": "Found" });
  const box = h("input", {
    type: "search",
    id: "search",
    "aria-label": "Search everything",
    placeholder: "Search everything ( / )",
    autocomplete: "off",
  });
  let timer = 0;
  let abort = new AbortController();
  const end = () => {
    clearTimeout(timer);
    abort.abort();
    found.hidden = true;
  };
  const look = async () => {
    abort.abort();
    abort = new AbortController();
    const { signal } = abort;
    const text = box.value.trim();
    if (text === "") {
      end();
      return;
    }
    const answers = await Promise.all(KINDS.map((kind) => ask(kind, text, signal)));
    if (!signal.aborted) {
      replace(found, shown(answers));
      found.hidden = false;
    }
  };
  box.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(look, PAUSE_MS);
  });
  const place = h("div", { class: "search", role: "search" }, box, found);
  place.addEventListener("keydown", (event) => move(event, box, found, end));
  place.addEventListener("focusout", (event) => {
    if (!place.contains(event.relatedTarget)) {
      end();
    }
  });
  found.addEventListener("click", (event) => event.target.closest("a") && end());
  return place;
}

/** Put the focus into the box when the user presses / outside of fields. */
export function searchByKey(event) {
  const field = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if (event.key === "/" && !field && !event.ctrlKey && !event.metaKey) {
    const box = document.getElementById("search");
    if (box) {
      event.preventDefault();
      box.focus();
    }
  }
}

async function ask([title, path, address], text, signal) {
  const asked = { page: 1, page_size: SHOWN, name: text, pagination: true, columns: "name,vhost" };
  try {
    const { items, filtered_count } = await get(at(path), asked, signal);
    return { title, items, more: filtered_count - items.length, address };
  } catch (error) {
    return { title, items: [], more: 0, address }; // not permitted, or given up
  }
}

function shown(answers) {
  const some = answers.filter((one) => one.items.length);
  if (some.length === 0) {
    return h("p", { role: "status" }, "Nothing has this in its name.");
  }
  return some.map(({ title, items, more, address }) => [
    h("h2", {}, title),
    h(
      "ul",
      {},
      items.map((one) => h("li", {}, link(address(one), one.name || "(no name)"), vhost(one))),
      more > 0 ? h("li", { class: "quiet" }, `and ${count(more)} more`) : null,
    ),
  ]);
}

function vhost(one) {
  return one.vhost === undefined ? null : h("span", { class: "quiet" }, ` ${one.vhost}`);
}

function move(event, box, found, end) {
  if (event.key === "Escape") {
    end();
    box.focus();
    return;
  }
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const links = [...found.querySelectorAll("a")];
  if (event.key === "Enter" && event.target === box && links.length && !found.hidden) {
    links[0].click();
    return;
  }
  if (!step || found.hidden || links.length === 0) {
    return;
  }
  event.preventDefault();
  const at = links.indexOf(document.activeElement) + step;
  (at < 0 ? box : links[Math.min(at, links.length - 1)]).focus();
}
