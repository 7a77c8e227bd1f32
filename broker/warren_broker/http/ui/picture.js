// Pictures of what is connected to what: boxes in columns, with lines between them; and a cluster.

import { count, h } from "./dom.js";

const NAMESPACE = "http://www.w3.org/2000/svg";
const BOX = { width: 190, height: 34 };
const GAP = { across: 110, down: 12 };
const TOP = 26;
const LETTERS = 24;
const LABELS_MAX = 30;

/** Return an element of SVG; children are nodes or texts. */
function s(name, attributes = {}, ...children) {
  const element = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) {
      element.setAttribute(key, String(value));
    }
  }
  element.append(...children.flat().filter((one) => one !== null));
  return element;
}

function cut(text, letters = LETTERS) {
  const all = [...text];
  return all.length > letters ? `${all.slice(0, letters - 1).join("")}…` : text;
}

function box(item, x, y) {
  const inside = [
    s("title", {}, [item.label, item.about].filter(Boolean).join(", ")),
    s("rect", { x, y, width: BOX.width, height: BOX.height, rx: 5, class: item.kind }),
    s("text", { x: x + 8, y: y + (item.about ? 15 : 21) }, cut(item.label)),
    item.about ? s("text", { x: x + 8, y: y + 28, class: "about" }, cut(item.about, 30)) : null,
  ];
  return item.href ? s("a", { href: item.href }, inside) : s("g", {}, inside);
}

/**
 * Return a picture. columns: {title, items: {key, label, about, href, kind}}, from left to right;
 * lines: {from, to, label}, between keys of neighbouring columns. Lines to what is not shown are
 * left out.
 */
export function picture(label, columns, lines) {
  const places = new Map();
  const drawn = [];
  const most = Math.max(1, ...columns.map((one) => one.items.length));
  columns.forEach(({ title, items }, at) => {
    const x = at * (BOX.width + GAP.across);
    drawn.push(s("text", { x, y: 14, class: "title" }, title));
    const shift = ((most - items.length) * (BOX.height + GAP.down)) / 2;
    items.forEach((item, row) => {
      const y = TOP + Math.min(shift, 200) + row * (BOX.height + GAP.down);
      places.set(item.key, { x, y });
      drawn.push(box(item, x, y));
    });
  });
  const shown = lines.filter(({ from, to }) => places.has(from) && places.has(to));
  const paths = shown.map((line) => path(line, places, shown.length <= LABELS_MAX));
  const width = columns.length * (BOX.width + GAP.across) - GAP.across;
  const height = TOP + most * (BOX.height + GAP.down) + Math.min(200, most * 4);
  const whole = { viewBox: `-2 0 ${width + 4} ${height}`, width: width + 4, height };
  const svg = s(
    "svg",
    { ...whole, class: "picture", role: "group", "aria-label": label },
    paths,
    drawn,
  );
  return h("div", { class: "wide", role: "region", "aria-label": label, tabindex: "0" }, svg);
}

function path({ from, to, label }, places, labelled) {
  const [start, end] = [places.get(from), places.get(to)];
  const [x1, y1] = [start.x + BOX.width, start.y + BOX.height / 2];
  const [x2, y2] = [end.x, end.y + BOX.height / 2];
  const middle = (x1 + x2) / 2;
  const line = s("path", { d: `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}` });
  if (!label || !labelled) {
    return line;
  }
  const at = { x: middle, y: (y1 + y2) / 2 - 3, class: "key", "text-anchor": "middle" };
  return s("g", {}, s("title", {}, label), line, s("text", at, cut(label, 16)));
}

/** Return a picture of the cluster. nodes: as the API lists them; state(node): {kind, text}. */
export function clusterPicture(nodes, state) {
  const width = 640;
  const height = nodes.length > 1 ? 300 : 90;
  const centre = { x: width / 2, y: height / 2 };
  const place = (at) => {
    const angle = (2 * Math.PI * at) / nodes.length - Math.PI / 2;
    const far = nodes.length > 1 ? 1 : 0;
    return {
      x: centre.x + far * Math.cos(angle) * (width / 2 - BOX.width / 2 - 10),
      y: centre.y + far * Math.sin(angle) * (height / 2 - 34),
    };
  };
  const links = nodes.flatMap((one, a) =>
    nodes.slice(a + 1).map((other, more) => {
      const [p, q] = [place(a), place(a + 1 + more)];
      const up = one.running && other.running;
      const line = { x1: p.x, y1: p.y, x2: q.x, y2: q.y };
      return s("line", { ...line, class: up ? "up" : "down" });
    }),
  );
  const boxes = nodes.map((node, at) => {
    const { x, y } = place(at);
    const { kind, text } = state(node);
    const led = count(node.queue_leaders);
    const about = `${led} leaders, ${count(node.quorum_queue_members)} members`;
    const [left, top] = [x - BOX.width / 2, y - 28];
    return s(
      "a",
      { href: `#/nodes/${encodeURIComponent(node.name)}` },
      s("rect", { x: left, y: top, width: BOX.width, height: 56, rx: 6, class: `node ${kind}` }),
      s("text", { x, y: top + 17, "text-anchor": "middle", class: "title" }, cut(node.name)),
      s("text", { x, y: top + 33, "text-anchor": "middle", class: `state ${kind}` }, text),
      s("text", { x, y: top + 48, "text-anchor": "middle", class: "about" }, about),
    );
  });
  const label = "Nodes of the cluster and the links between them";
  const whole = { viewBox: `0 0 ${width} ${height}`, width, height, class: "picture" };
  const svg = s("svg", { ...whole, role: "group", "aria-label": label }, links, boxes);
  return h("div", { class: "wide", role: "region", "aria-label": label, tabindex: "0" }, svg);
}
