// Parts of a queue's page: members, priorities, delayed messages, and what is connected to it.

import { at, exchangeName, get, may, request } from "./api.js";
import { ago, count, facts, h, link, mark, page, size, when } from "./dom.js";
import { action, form } from "./form.js";
import { table } from "./list.js";
import { picture } from "./picture.js";

const DELAYED_SHOWN = 20;
const DRAWN_MAX = 30;
const STATES = { running: "ok", down: "bad", lost: "bad", unknown: "bad" };

// ------------------------------------------------------------------ members

/** Return a queue's members with what they lack; actions of operators. */
export function members(view, vhost, name) {
  const own = `queues/quorum/${at(vhost, name)}`;
  const act = (text, one, question, run, danger) =>
    action(view, {
      text,
      label: `${text}: ${one.node}`,
      key: `${text} ${one.node}`,
      tag: "administrator",
      question,
      danger,
      run,
    });
  const lead = (one) =>
    act(
      "Lead",
      one,
      `Have ${one.node} lead ${name}? Clients go on; messages wait for a moment.`,
      async () => {
        await request("POST", `${own}/leader/transfer`, { body: { node: one.node } });
        return `${one.node} leads ${name}.`;
      },
    );
  const drop = (one) =>
    act(
      "Remove",
      one,
      `Remove the member on ${one.node}? Its copy of ${name} is deleted there; the others go on.`,
      async () => {
        await request("DELETE", `${own}/replicas/delete`, { body: { node: one.node } });
        return `The member on ${one.node} is being removed.`;
      },
      true,
    );
  const columns = [
    { label: "Node", cell: (one) => link(page("nodes", one.node), one.node) },
    { label: "Role", cell: (one) => one.role },
    {
      label: "State",
      cell: (one) => mark(STATES[one.state] || "warn", one.state.replace("_", " ")),
    },
    { label: "Entries behind", number: true, cell: (one) => count(one.lag) },
    { label: "Snapshot", cell: snapshot, when: (one) => one.total_bytes > 0 },
    {
      label: "Actions",
      when: () => may("administrator"),
      cell: (one) =>
        h(
          "div",
          { class: "row" },
          one.role === "follower" && one.voter ? lead(one) : null,
          drop(one),
        ),
    },
  ];
  return (found) => {
    if (!found || found.members.length === 0) {
      return null;
    }
    const waits = found.settled ? null : h("p", { class: "quiet-note" }, "Members are changing.");
    const shown = table("Members", columns, found.members, { titled: true });
    return [h("h2", {}, "Members"), shown, waits];
  };
}

function snapshot(one) {
  return one.total_bytes ? `${size(one.sent_bytes)} of ${size(one.total_bytes)}` : "";
}

/** Return a form that adds a member. */
export function memberForm(view, vhost, name) {
  return form(view, {
    label: "Add a member",
    key: "add-member",
    tag: "administrator",
    submit: "Add member",
    fields: [{ name: "node", label: "On the node", required: true }],
    run: async ({ node }) => {
      const path = `queues/quorum/${at(vhost, name)}/replicas/add`;
      await request("POST", path, { body: { node } });
      return `A member on ${node} is added: it learns what the queue holds, then it votes.`;
    },
  });
}

// ------------------------------------------------------------------ priorities, age

/** Return the ready messages by priority; null: all have one. */
export function priorities(queue) {
  const found = Object.entries(queue.messages_by_priority || {}).filter(([, number]) => number > 0);
  if (found.length < 2) {
    return null;
  }
  found.sort(([a], [b]) => b - a);
  return facts(found.map(([priority, number]) => [`Priority ${priority}`, count(number)]));
}

/** Return when the message that is delivered next entered a queue; 0: none, or not to be seen. */
export async function oldest(vhost, name, signal) {
  try {
    const asked = { states: "ready", count: 1, body_bytes: 0 };
    const found = await get(at("queues", vhost, name, "messages"), asked, signal);
    return found.messages.length ? found.messages[0].published_at : 0;
  } catch (error) {
    if (error.name === "AbortError") {
      throw error;
    }
    return 0;
  }
}

// ------------------------------------------------------------------ delayed messages

/** Return the delayed messages that are ready first; null: there are none, or no right. */
export async function delayedOf(queue, signal) {
  if (!queue.messages_delayed) {
    return null;
  }
  try {
    const path = `${at("queues", queue.vhost, queue.name)}/messages/delayed`;
    return await get(path, { count: DELAYED_SHOWN }, signal);
  } catch (error) {
    if (error.permitted === false) {
      return null;
    }
    throw error;
  }
}

/** Return a table of them. */
export function delayed(view, queue, found) {
  const own = `${at("queues", queue.vhost, queue.name)}/messages/delayed`;
  const button = (text, one, question, method, more, done, danger) =>
    action(view, {
      text,
      label: `${text}: ${one.id}`,
      key: `${text} ${one.id}`,
      question,
      danger,
      run: async () => {
        await request(method, `${own}/${at(one.id)}${more}`);
        return done;
      },
    });
  const columns = [
    { label: "Ready", cell: (one) => when(one.ready_at) },
    { label: "In", cell: (one) => ago(one.ready_at - Date.now()) },
    { label: "Exchange", cell: (one) => one.exchange || "(default exchange)" },
    { label: "Routing key", cell: (one) => one.routing_key },
    { label: "Message id", cell: (one) => one.message_id },
    { label: "Size", number: true, cell: (one) => size(one.size_bytes) },
    {
      label: "Actions",
      cell: (one) =>
        h(
          "div",
          { class: "row" },
          button("Now", one, "", "POST", "/retry", "The message is ready."),
          button(
            "Drop",
            one,
            "Drop this delayed message? It is not delivered, and cannot be brought back.",
            "DELETE",
            "",
            "The message is dropped.",
            true,
          ),
        ),
    },
  ];
  const all = action(view, {
    text: "All now",
    question: `Make the ${count(queue.messages_delayed)} delayed messages ready now?`,
    run: async () => {
      const told = await request("POST", `${own}/retry`);
      return `${count(told.message_count)} messages are ready.`;
    },
  });
  const left = queue.messages_delayed - found.length;
  return [
    h("h2", {}, "Delayed messages"),
    facts([
      ["Next", when(queue.next_delayed_at)],
      ["Last", when(queue.last_delayed_at)],
    ]),
    table("Delayed messages", columns, found, { titled: true }),
    left > 0 ? h("p", { class: "quiet-note" }, `${count(left)} more are ready later.`) : null,
    all,
  ];
}

// ------------------------------------------------------------------ the picture

/** Return what brings messages to a queue, and what takes them. */
export function flow(queue, bindings) {
  const sources = [...new Set(bindings.map((one) => one.source))].slice(0, DRAWN_MAX);
  const consumers = (queue.consumer_details || []).slice(0, DRAWN_MAX);
  const exchanges = sources.map((name) => ({
    key: `e ${name}`,
    label: name || "(default exchange)",
    href: page("exchanges", queue.vhost, exchangeName(name)),
    kind: "exchange",
  }));
  const middle = {
    key: "q",
    label: queue.name || "(empty name)",
    about: `${count(queue.messages_ready)} ready, ${count(queue.messages_unacknowledged)} unacked`,
    kind: "queue",
  };
  const ends = consumers.map((one, at) => ({
    key: `c ${at}`,
    label: one.consumer_tag,
    about: (one.channel_details || {}).connection_name,
    kind: "consumer",
  }));
  const readers = (queue.readers || []).slice(0, DRAWN_MAX).map((one) => ({
    key: `r ${one.name}`,
    label: (one.read_by || {}).name || one.name,
    about: `Spark, ${count(one.open_claims)} open claims`,
    href: page("spark"),
    kind: "reader",
  }));
  const takers = [...ends, ...readers];
  const lines = [
    ...bindings.map((one) => ({ from: `e ${one.source}`, to: "q", label: one.routing_key })),
    ...takers.map(({ key }) => ({ from: "q", to: key })),
  ];
  const columns = [
    { title: "Exchanges", items: exchanges },
    { title: "Queue", items: [middle] },
    { title: "Consumers", items: takers },
  ];
  return picture("What brings messages to the queue, and what takes them", columns, lines);
}
