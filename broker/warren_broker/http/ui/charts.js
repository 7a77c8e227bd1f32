// Line charts of the samples that the API keeps, drawn by uPlot.

import uPlot from "./uplot/uPlot.esm.js";
import { get } from "./api.js";
import { count, h } from "./dom.js";
import { rateOf } from "./queues_page.js";

const SPAN = "warren-chart-span";
/** Name, seconds, and seconds between two samples. */
const SPANS = [
  ["last minute", 60, 5],
  ["last ten minutes", 600, 10],
  ["last hour", 3600, 60],
];
const COLOURS = ["#2f7ed8", "#d9822b", "#2a9d4a", "#b8448c"];
const HEIGHT = 180;
const WIDTH_LEAST = 260;
const WIDTH_MOST = 500;
const MARGIN = 40;
const WITHOUT = "This installation has no charts: it was built without uPlot.";
const NONE = "No samples yet, or a user with the tag monitoring sees them.";

/** What charts show: each has a title, and of each line its name and the place of its details. */
export const LENGTHS = {
  title: "Queued messages",
  of: "lengths",
  lines: [
    ["Ready", "messages_ready"],
    ["Unacknowledged", "messages_unacknowledged"],
    ["Total", "messages"],
  ],
};
export const RATES = {
  title: "Message rates",
  of: "message_stats",
  lines: [
    ["Published", "publish"],
    ["Delivered", "deliver_get"],
    ["Acknowledged", "ack"],
    ["Redelivered", "redeliver"],
  ],
};

/**
 * Add a section with charts to a page. `load(signal)` returns what was asked for with `sampled`,
 * `lengthsOf` the object in it with the details of lengths; they stay on the page, and get other
 * data.
 */
export function addCharts(view, load, lengthsOf) {
  if (!uPlot) {
    view.add(h("p", { class: "quiet-note" }, WITHOUT));
    return;
  }
  useStyles();
  const drawn = [new Chart(LENGTHS, whole), new Chart(RATES, perSecond)];
  const place = h(
    "div",
    { class: "columns" },
    drawn.map((one) => one.figure),
  );
  const render = (found) => {
    const sources = { lengths: lengthsOf(found), message_stats: found.message_stats };
    for (const one of drawn) {
      one.show(sources[one.kind.of] || {});
    }
    return place;
  };
  view.live(load, render, "Charts");
  view.add(h("div", { class: "row" }, chooser(view)));
}

/** Ask for an object with the samples that the charts show. */
export function sampled(path, signal) {
  const [, age, incr] = span();
  const lengths = { lengths_age: age, lengths_incr: incr };
  return get(path, { ...lengths, msg_rates_age: age, msg_rates_incr: incr }, signal);
}

/** Return the rate at the end of the chart of a kind of message_stats, or the API's. */
export function latestRate(object, kind) {
  const { samples } = (object.message_stats || {})[`${kind}_details`] || {};
  const points = perSecond([...(samples || [])].reverse());
  const value = points.length ? points.at(-1)[1] : null;
  return value === null ? rateOf(object, kind) : `${count(value, 1)}/s`;
}

function chooser(view) {
  const options = SPANS.map(([name, age]) =>
    h("option", { value: age, selected: age === span()[1] }, name),
  );
  const change = (event) => {
    sessionStorage.setItem(SPAN, event.target.value);
    view.refresh();
  };
  return h("label", {}, "Charts of the ", h("select", { name: "span", on: { change } }, options));
}

function span() {
  const kept = Number(sessionStorage.getItem(SPAN));
  return SPANS.find(([, age]) => age === kept) || SPANS[1];
}

function useStyles() {
  const href = "ui/uplot/uPlot.min.css";
  if (!document.querySelector(`link[href="${href}"]`)) {
    document.head.append(h("link", { rel: "stylesheet", href }));
  }
}

/** Return the samples, the oldest first, as times and values. */
function whole(samples) {
  return samples.map((one) => [one.timestamp / 1000, one.sample]);
}

/** Return the rates between samples of a count. */
function perSecond(samples) {
  return whole(samples)
    .map(([time, value], at, all) => {
      const [before, least] = at > 0 ? all[at - 1] : [time, value];
      return [time, time > before ? Math.max(0, (value - least) / (time - before)) : null];
    })
    .slice(1);
}

function clock(time) {
  const given = time === null || time === undefined;
  return given ? "–" : new Date(time * 1000).toLocaleTimeString("en-GB");
}

/** One chart: an image for those that do not see it is described by its latest values. */
class Chart {
  constructor(kind, pointsOf) {
    this.kind = kind;
    this.pointsOf = pointsOf;
    this.place = h("div", { class: "chart", role: "img" });
    this.none = h("p", { class: "quiet-note" }, NONE);
    this.figure = h("figure", {}, h("figcaption", {}, kind.title), this.none, this.place);
    this.plot = null;
  }

  show(details) {
    const lines = this.kind.lines.map(([, key]) => {
      const { samples } = details[`${key}_details`] || {};
      return new Map(this.pointsOf([...(samples || [])].reverse()));
    });
    const times = [...new Set(lines.flatMap((line) => [...line.keys()]))].sort((a, b) => a - b);
    const data = [times, ...lines.map((line) => times.map((time) => line.get(time) ?? null))];
    this.none.hidden = times.length > 0;
    this.place.hidden = times.length === 0;
    this.place.setAttribute("aria-label", this.description(data));
    if (times.length > 0) {
      this.draw(data);
    }
  }

  description(data) {
    const last = this.kind.lines.map(([name], at) => {
      const value = data[at + 1].at(-1);
      return `${name} ${typeof value === "number" ? Number(value.toFixed(1)) : "none"}`;
    });
    return `${this.kind.title}, now: ${last.join(", ")}`;
  }

  draw(data) {
    const [, age] = span();
    const now = Date.now() / 1000;
    const width = this.width();
    if (this.plot === null) {
      this.plot = new uPlot(this.options(width), data, this.place);
    }
    this.plot.setSize({ width, height: HEIGHT });
    this.plot.setData(data);
    this.plot.setScale("x", { min: now - age, max: now });
  }

  width() {
    const room = document.querySelector("main").clientWidth - MARGIN;
    return Math.min(WIDTH_MOST, Math.max(WIDTH_LEAST, room));
  }

  options(width) {
    // Of elements: the colours' names stand for two, of which the theme takes one.
    const stroke = getComputedStyle(document.body).color;
    const border = getComputedStyle(document.querySelector("nav ul")).borderBottomColor;
    const grid = { stroke: border, width: 1 };
    const lines = this.kind.lines.map(([label], at) => ({
      label,
      stroke: COLOURS[at],
      width: 2,
      spanGaps: true,
      value: (plot, value) => (value === null ? "–" : String(Number(value.toFixed(1)))),
    }));
    return {
      width,
      height: HEIGHT,
      series: [{ label: "Time", value: (plot, time) => clock(time) }, ...lines],
      axes: [
        { stroke, grid, ticks: grid, space: 80, values: (plot, times) => times.map(clock) },
        { stroke, grid, ticks: grid, size: 60 },
      ],
      scales: { x: { auto: false }, y: { range: (plot, least, most) => [0, Math.max(1, most)] } },
    };
  }
}
