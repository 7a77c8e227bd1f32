// The messages of a queue, page by page: looking at them takes nothing out and changes nothing.

import { at, get } from "./api.js";
import { bytesOf, hex, indented, publishLine, textOf } from "./bodies.js";
import { ago, count, entries, facts, h, link, mark, page, replace, when } from "./dom.js";
import { form, panel } from "./form.js";
import { groupForm, jobForm, jobsTable, oneMessage } from "./jobs.js";
import { View, shownError } from "./view.js";

const STATES = ["ready", "held", "delayed", "claimed", "dead", "kept"];
const MARKS = { ready: "ok", dead: "bad" };
const EXCERPT = 120;
const WHOLE_BYTES = 1 << 20;
const LOOK = "warren-body";
const LOOKS = [
  ["pretty", "as JSON, indented"],
  ["text", "as text"],
  ["hex", "as hex"],
];
const FIELDS = [
  {
    name: "states",
    label: "State",
    type: "select",
    options: [["", "any"], ...STATES.map((one) => [one, one])],
  },
  { name: "filter", label: "SQL filter", hint: "of properties and headers: region = 'eu'" },
  { name: "contains", label: "Body contains" },
  { name: "priority", label: "Priority", type: "number", min: 0, max: 31, optional: true },
  { name: "older_s", label: "Older than, seconds", type: "number", min: 0, optional: true },
  { name: "newer_s", label: "Newer than, seconds", type: "number", min: 0, optional: true },
  {
    name: "reason",
    label: "Died of",
    type: "select",
    options: [["", "anything"], "rejected", "expired", "maxlen", "delivery_limit"],
  },
  { name: "origin", label: "Died in queue" },
  { name: "header", label: "Header", hint: "NAME=TEXT" },
  { name: "hour", label: "Hour (UTC)", hint: "such as 2026-11-30T04" },
  { name: "count", label: "On a page", type: "select", options: ["20", "50", "100", "500"] },
];

/** The browser of a queue's messages. */
export function messagesPage(vhost, name) {
  const view = new View(`Messages of ${name}`);
  new Browser(view, vhost, name);
  return view;
}

/** What is looked at: `asked` with the pages before this one, which begins behind `after`. */
class Browser {
  constructor(view, vhost, name) {
    this.view = view;
    this.of = [vhost, name];
    this.path = at("queues", vhost, name, "messages");
    this.begin({ count: "20" });
    this.found = null;
    this.head = h("div", {});
    this.list = h("div", { class: "messages" });
    const look = form(view, {
      label: "Look at messages",
      key: "browse",
      submit: "Look",
      keep: true,
      fields: FIELDS,
      run: (given) => this.begin(askedOf(given)),
    });
    view.about(`The queue ${name}`);
    view.add(h("p", {}, "Queue ", link(page("queues", vhost, name), name), `, vhost ${vhost}. `));
    view.add(h("p", { class: "quiet-note" }, "Looking takes nothing out of the queue."), look);
    // Messages stay on the screen until the next ones are asked for.
    const shown = () => [this.head, this.list];
    view.live((signal) => this.load(signal), shown, "", { still: true });
    const selection = () => this.selection();
    const choose = (values) => {
      for (const [key, value] of Object.entries(values)) {
        look.elements[key].value = value;
      }
      look.requestSubmit();
    };
    view.add(
      panel("What messages have in common", groupForm(view, vhost, name, selection, choose)),
      panel("Do with all that match", jobForm(view, vhost, name, selection)),
    );
    const jobs = (signal) => get(at("queues", vhost, name, "jobs"), {}, signal);
    view.live(jobs, (found) => (found.length ? jobsTable(view, found) : null));
  }

  /** Return which messages are meant, whatever their state. */
  selection() {
    const { states, count: most, ...chosen } = this.asked;
    return chosen;
  }

  begin(asked) {
    Object.assign(this, { asked, before: [], after: "" });
  }

  async load(signal) {
    this.found = await get(this.path, { ...this.asked, after: this.after }, signal);
    const { messages, next, looked, current } = this.found;
    const none = next ? "None of these matches" : "No message";
    replace(
      this.head,
      h(
        "div",
        { class: "pager" },
        this.turn("‹ Back", this.before.length > 0, () => {
          this.after = this.before.pop();
        }),
        this.turn("Next ›", next !== "", () => {
          this.before.push(this.after);
          this.after = next;
        }),
        h(
          "span",
          { class: "where" },
          messages.length ? many(messages.length) : none,
          `, ${count(looked)} looked at`,
          current ? "" : "; the leader was not reached, so the last ones may be missing",
        ),
        h(
          "label",
          {},
          "Bodies ",
          chooser(() => this.show()),
        ),
      ),
    );
    this.show();
  }

  show() {
    replace(
      this.list,
      this.found.messages.map((one, number) => this.card(one, number)),
    );
  }

  turn(text, able, change) {
    const press = () => {
      change();
      this.view.refresh();
    };
    return h(
      "button",
      { type: "button", disabled: !able, "data-key": text, on: { click: press } },
      text,
    );
  }

  card(one, number) {
    const shown = h("pre", { tabindex: "0", "aria-label": "Body" }, looked(one));
    const cut = cutAt(one);
    const whole = async () => {
      const all = cutAt(one) ? await this.whole(number) : one;
      Object.assign(one, all);
      shown.textContent = looked(one);
    };
    const button = (text, run) =>
      h("button", { type: "button", on: { click: () => this.tried(run) } }, text);
    return h(
      "details",
      { class: "message" },
      h(
        "summary",
        {},
        mark(MARKS[one.state] || "warn", one.state),
        ` ${excerpt(one)}`,
        h("span", { class: "quiet-note" }, ` ${aboutOf(one)}`),
      ),
      why(one),
      facts(said(one)),
      shown,
      oneMessage(this.view, ...this.of, one, async () => {
        await whole();
        return textOf(one);
      }),
      h(
        "div",
        { class: "row" },
        cut ? button("Load the whole body", whole) : null,
        button("Download the body", async () => {
          await whole();
          download(bytesOf(one), `message-${one.index}-${one.ordinal}`);
        }),
        button("Copy as warren publish", async () => {
          await whole();
          await navigator.clipboard.writeText(publishLine(one));
          this.view.say("The command is in the clipboard.");
        }),
        cut ? h("small", {}, `The first ${count(cut)} bytes are shown.`) : null,
      ),
    );
  }

  /** Return a message with up to 1 MiB of its body; Error: it is not there any more. */
  async whole(number) {
    const { messages } = this.found;
    const { index, ordinal } = messages[number];
    const after = number > 0 ? messages[number - 1].place : this.after;
    const asked = { ...this.asked, after, count: 1, body_bytes: WHOLE_BYTES };
    const found = await get(this.path, asked, this.view.abort.signal);
    const [one] = found.messages;
    if (!one || one.index !== index || one.ordinal !== ordinal) {
      throw new Error("The message is not there any more: it was delivered, moved or dropped.");
    }
    return one;
  }

  async tried(run) {
    try {
      await run();
    } catch (error) {
      this.view.say(shownError(error), true);
    }
  }
}

function many(number) {
  return `${count(number)} ${number === 1 ? "message" : "messages"}`;
}

function askedOf({ older_s, newer_s, ...given }) {
  const more = { older_ms: older_s * 1000 || "", newer_ms: newer_s * 1000 || "" };
  const all = Object.entries({ ...given, ...more });
  return Object.fromEntries(all.filter(([, value]) => value !== "" && value !== null));
}

function chooser(chosen) {
  const change = (event) => {
    sessionStorage.setItem(LOOK, event.target.value);
    chosen();
  };
  const options = LOOKS.map(([value, text]) =>
    h("option", { value, selected: value === lookOf() }, text),
  );
  return h("select", { "data-key": "look", on: { change } }, options);
}

function lookOf() {
  return sessionStorage.getItem(LOOK) || LOOKS[0][0];
}

function looked(one) {
  if (one.unreadable) {
    return `It cannot be read: ${one.unreadable}`;
  }
  if (lookOf() === "hex") {
    return hex(bytesOf(one));
  }
  return lookOf() === "pretty" ? indented(textOf(one)) : textOf(one);
}

/** Return how many bytes of a body are here, if it has more; 0: it is whole. */
function cutAt(one) {
  const here = bytesOf(one).length;
  return here < one.body_bytes ? here : 0;
}

function excerpt(one) {
  const text = textOf(one).slice(0, EXCERPT).replace(/\s+/g, " ");
  return text || "(empty body)";
}

function aboutOf(one) {
  const told = [
    one.published_at ? `${ago(Date.now() - one.published_at)} old` : null,
    `${count(one.body_bytes)} bytes`,
    one.priority ? `priority ${one.priority}` : null,
    one.delivery_count ? `${count(one.delivery_count)} failed deliveries` : null,
  ];
  return told.filter(Boolean).join(", ");
}

function said(one) {
  const next = { delayed: "Ready at", claimed: "Claim expires at" };
  return [
    ["Position", `${one.index}, ${one.ordinal}`],
    ["Held by", one.state === "held" ? one.holder || "a get" : null],
    ["On node", one.node],
    ["Claimed by", one.state === "claimed" ? `${one.holder}, claim ${one.claim}` : null],
    ["Died of", one.reason],
    ["Since", when(one.since)],
    [next[one.state] || "Then", when(one.next_at)],
    ["Failed deliveries", one.delivery_count ? count(one.delivery_count) : null],
    ["Handed out", one.acquired_count ? count(one.acquired_count) : null],
    ["Published", when(one.published_at)],
    ["Exchange", one.exchange || "(default exchange)"],
    ["Routing key", one.routing_key],
    ["Properties", entries(one.properties)],
    ["Headers", entries(one.headers)],
    ["Annotations", entries(one.annotations)],
  ];
}

/** Return why a message is in a queue of dead letters; null: it did not die. */
function why(one) {
  const deaths = one.headers["x-death"];
  if (!Array.isArray(deaths) || deaths.length === 0) {
    return null;
  }
  const reasons = {
    rejected: "was rejected by its consumer",
    expired: "expired",
    maxlen: "was more than the queue holds",
    delivery_limit: "failed at every delivery that the queue allows",
  };
  const told = deaths.map((death) => {
    const times = death.count > 1 ? `, ${count(death.count)} times` : "";
    return h(
      "li",
      {},
      `It ${reasons[death.reason] || death.reason} in queue ${death.queue}${times}.`,
    );
  });
  return h("div", { class: "why" }, h("strong", {}, "Why it is here"), h("ul", {}, told));
}

function download(data, name) {
  const address = URL.createObjectURL(new Blob([data]));
  h("a", { href: address, download: name }).click();
  URL.revokeObjectURL(address);
}
