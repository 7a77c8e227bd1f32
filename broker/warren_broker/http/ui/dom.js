// Elements of the page. A text is always a text node: names of queues may hold anything.

/** Return an element; `on` has its listeners; children are nodes, texts or lists of them. */
export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "on") {
      for (const [event, listener] of Object.entries(value)) {
        element.addEventListener(event, listener);
      }
    } else if (value === true) {
      element.setAttribute(key, "");
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(key, String(value));
    }
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) {
      append(element, child);
    } else if (child instanceof Node) {
      element.append(child);
    } else if (child !== null && child !== undefined && child !== false) {
      element.append(document.createTextNode(String(child)));
    }
  }
}

/** Show other children, unless they are the same; the focus stays where it was, by `data-key`. */
export function replace(container, ...children) {
  const next = h("div", {}, ...children);
  const same =
    next.childNodes.length === container.childNodes.length &&
    [...next.childNodes].every((node, at) => node.isEqualNode(container.childNodes[at]));
  // Listeners are not compared: those of an element that is equal do the same.
  if (same) {
    return;
  }
  const focused = document.activeElement;
  const key = container.contains(focused) ? focused.dataset.key : undefined;
  container.replaceChildren(...next.childNodes);
  if (key !== undefined) {
    for (const one of container.querySelectorAll("[data-key]")) {
      if (one.dataset.key === key) {
        one.focus();
        return;
      }
    }
  }
}

/** Return a link to a page of this UI. */
export function link(path, text, more = {}) {
  return h("a", { href: path, "data-key": path, ...more }, text);
}

/** Return the address of a page: the parts are encoded. */
export function page(...parts) {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

/** Return a list of terms and values; a pair without a value is left out. */
export function facts(pairs) {
  return h(
    "dl",
    { class: "facts" },
    pairs
      .filter(([, value]) => value !== undefined && value !== null && value !== "")
      .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
  );
}

/** Return the value of an argument, policy or property as a text. */
export function shown(value) {
  if (Number.isInteger(value) && !Number.isSafeInteger(value)) {
    return `about ${value}`; // JSON's number was beyond 2^53
  }
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Return the entries of an object, one a line. */
export function entries(object) {
  const found = Object.entries(object || {});
  if (found.length === 0) {
    return null;
  }
  return found.map(([key, value]) => h("div", { class: "entry" }, `${key}: ${shown(value)}`));
}

/** Return a number as the browser's language writes it; nothing for what is no number. */
export function count(value, decimals = 0) {
  const digits = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
  return typeof value === "number" ? value.toLocaleString(undefined, digits) : "";
}

/** Return a time in milliseconds since the epoch in the browser's language; 0: nothing. */
export function when(ms) {
  const written = { dateStyle: "medium", timeStyle: "medium" };
  return ms > 0 ? new Date(ms).toLocaleString(undefined, written) : "";
}

/** Return a length of time in its two greatest units. */
export function ago(ms) {
  if (typeof ms !== "number") {
    return "";
  }
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const parts = [
    [Math.floor(seconds / 86400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [seconds % 60, "s"],
  ];
  const first = parts.findIndex(([value]) => value > 0);
  const greatest = parts.slice(first, first + 2).filter(([value]) => value > 0);
  const told = first < 0 ? [parts.at(-1)] : greatest;
  return told.map(([value, unit]) => `${count(value)} ${unit}`).join(" ");
}

/** Return bytes in a unit that suits them. */
export function size(bytes) {
  if (typeof bytes !== "number") {
    return "";
  }
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = bytes < 1024 ? 0 : Math.min(4, Math.floor(Math.log2(bytes) / 10));
  return `${count(bytes / 1024 ** power, power ? 1 : 0)} ${units[power]}`;
}

/** Return a mark: ok, warn or bad. */
export function mark(kind, text) {
  return h("span", { class: `mark ${kind}` }, text);
}
