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

/** Return a number with its thousands apart; nothing for what is no number. */
export function count(value) {
  return typeof value === "number" ? value.toLocaleString("en-US") : "";
}

/** Return a mark: ok, warn or bad. */
export function mark(kind, text) {
  return h("span", { class: `mark ${kind}` }, text);
}
