// One queue: its state, bindings, consumers and messages, and what may be done with it.

import { at, get, request, tryGet } from "./api.js";
import { addCharts, latestRate, sampled } from "./charts.js";
import { bindForm, bindingColumns } from "./bindings.js";
import { ago, count, entries, facts, h, link, mark, page, size } from "./dom.js";
import { action, form, panel } from "./form.js";
import { table } from "./list.js";
import { getForm, publishForm } from "./messages.js";
import * as parts from "./queue_parts.js";
import { stateOf } from "./queues_page.js";
import { sinksOf, sparkOf } from "./spark.js";
import { View } from "./view.js";

const COUNTS = [
  ["Ready", "messages_ready"],
  ["Unacknowledged", "messages_unacknowledged"],
  ["Total", "messages"],
  ["Consumers", "consumers"],
];
/** Shown where there are any. */
const RARE_COUNTS = [
  ["Delayed", "messages_delayed"],
  ["Claimed by Spark", "messages_claimed"],
  ["Staged by Spark", "messages_staged"],
  ["Set aside", "messages_set_aside"],
  ["Waiting for dead-lettering", "messages_dlx"],
  ["Duplicates dropped", "duplicates_dropped"],
];
const RATES = [
  ["Published", "publish"],
  ["Delivered", "deliver_get"],
  ["Acknowledged", "ack"],
  ["Redelivered", "redeliver"],
];

/** One queue. */
export function queuePage(vhost, name) {
  const view = new View(`Queue ${name}`);
  const own = at("queues", vhost, name);
  let last = {}; // asked for once: the sections are loaded in their order
  let bound = [];
  const load = async (signal) => {
    last = await sampled(own, signal);
    last.oldest_at = last.messages_ready ? await parts.oldest(vhost, name, signal) : 0;
    return last;
  };
  view.about(`The queue ${name}`);
  view.live(load, overview, "Overview");
  const browser = link(page("queues", vhost, name, "messages"), "Look at the messages");
  view.add(h("p", {}, browser, ": nothing is taken out."));
  addCharts(
    view,
    () => last,
    (queue) => queue,
  );
  view.live((signal) => mover(vhost, name, signal), moving);
  const delayed = (signal) => parts.delayedOf(last, signal);
  view.live(delayed, (found) => found && parts.delayed(view, last, found));
  const runs = (signal) => (last.type === "quorum" ? sinksOf(last, signal) : []);
  view.live(runs, (found) => sparkOf(view, last, found));
  const group = (signal) => (last.members ? get(`${own}/members`, {}, signal) : null);
  view.live(group, parts.members(view, vhost, name));
  const bindings = async (signal) => {
    bound = await get(`${own}/bindings`, {}, signal);
    return bound;
  };
  const columns = bindingColumns(view, "source");
  view.live(bindings, (found) => table("Bindings to this queue", columns, found), "Bindings");
  view.live(() => last, consumers);
  view.live(
    () => bound,
    () => [h("h2", {}, "Flow"), parts.flow(last, bound)],
  );
  view.add(
    panel("Add a member", parts.memberForm(view, vhost, name)),
    panel("Add a binding", bindForm(view, vhost, { to: { kind: "q", name } })),
    panel("Publish a message", publishForm(view, vhost, { queue: name })),
    panel("Get messages", getForm(view, vhost, name)),
    panel("Move messages", moveForm(view, vhost, name)),
    panel("Purge or delete", ends(view, vhost, name)),
  );
  return view;
}

function overview(queue) {
  const down = (queue.members || []).filter((one) => !queue.online.includes(one));
  const about = facts([
    ["State", stateOf(queue)],
    ["Vhost", queue.vhost],
    ["Type", queue.type],
    ["Features", features(queue)],
    ["Arguments", entries(queue.arguments)],
    ["Policy", queue.policy],
    ["Operator policy", queue.operator_policy],
    ["Effective policy", entries(queue.effective_policy_definition)],
    ["Leader", queue.leader || queue.node || "none"],
    ["Members", down.length ? down.map((one) => mark("bad", `${one} is down`)) : null],
  ]);
  const told = [...COUNTS, ...RARE_COUNTS.filter(([, key]) => queue[key] > 0)];
  const counts = facts([
    ...told.map(([label, key]) => [label, count(queue[key])]),
    ["Ready bytes", size(queue.message_bytes_ready)],
    ["Next message is", queue.oldest_at ? `${ago(Date.now() - queue.oldest_at)} old` : null],
  ]);
  const rates = facts(RATES.map(([label, kind]) => [label, latestRate(queue, kind)]));
  return h("div", { class: "columns" }, about, counts, parts.priorities(queue), rates);
}

function features(queue) {
  const found = [
    queue.durable ? "durable" : "transient",
    queue.auto_delete && "deleted after its last consumer",
    queue.exclusive && "exclusive",
  ];
  return found.filter(Boolean).join(", ");
}

function consumers(queue) {
  if (!Array.isArray(queue.consumer_details)) {
    return null;
  }
  const columns = [
    {
      label: "Channel",
      cell: (one) => {
        const { name, connection_name } = one.channel_details || {};
        const connection = connection_name || (one.connection_details || {}).name;
        return connection ? link(page("connections", connection), name || connection) : name;
      },
    },
    { label: "Tag", cell: (one) => one.consumer_tag },
    { label: "Acknowledges", cell: (one) => (one.ack_required ? "yes" : "no") },
    { label: "Prefetch", number: true, cell: (one) => count(one.prefetch_count) },
    { label: "Arguments", cell: (one) => entries(one.arguments) },
  ];
  return table("Consumers", columns, queue.consumer_details, { empty: "No consumers." });
}

// ------------------------------------------------------------------ moving messages

/** Return the path of the shovel that moves the messages of a queue: RabbitMQ's UI names it so. */
function moverPath(vhost, queue) {
  return at("shovels", "vhost", vhost, moverName(queue));
}

function moverName(queue) {
  return `Move from ${queue}`;
}

/** Return that shovel; null where none runs, or the user may not see it. */
async function mover(vhost, queue, signal) {
  try {
    return await tryGet(moverPath(vhost, queue), {}, signal);
  } catch (error) {
    if (error.permitted === false) {
      return null;
    }
    throw error;
  }
}

function moving(shovel) {
  if (shovel === null) {
    return null;
  }
  const left = shovel.remaining === undefined ? "" : `, ${count(shovel.remaining)} left`;
  const said = `${count(shovel.forwarded)} messages moved to ${shovel.dest_queue}${left}`;
  return h(
    "p",
    { class: shovel.reason ? "problem" : "moving", role: shovel.reason ? "alert" : null },
    shovel.reason ? `Moving messages fails: ${shovel.reason}. ${said}. ` : `${said}. `,
    link(page("shovels"), "Shovels"),
  );
}

function moveForm(view, vhost, queue) {
  const made = form(view, {
    label: "Move messages",
    key: "move",
    tag: "policymaker",
    submit: "Move messages",
    fields: [{ name: "to", label: "To the queue", required: true }],
    run: async ({ to }) => {
      if ((await tryGet(at("queues", vhost, to), { disable_stats: true })) === null) {
        throw new Error(`There is no queue ${to} in vhost ${vhost}: add it first.`);
      }
      const uri = `amqp:///${encodeURIComponent(vhost)}`;
      const value = {
        "src-protocol": "amqp091",
        "src-uri": uri,
        "src-queue": queue,
        "src-prefetch-count": 1000,
        "src-delete-after": "queue-length",
        "dest-protocol": "amqp091",
        "dest-uri": uri,
        "dest-queue": to,
        "dest-add-forward-headers": false,
        "ack-mode": "on-confirm",
      };
      const path = at("parameters", "shovel", vhost, moverName(queue));
      await request("PUT", path, { body: { value } });
      return `A shovel moves what is in the queue to ${to}, and ends.`;
    },
  });
  const about =
    "A shovel moves the messages that are in the queue now, and removes itself. It acts for you, " +
    "with your permissions in this vhost.";
  return made && [h("p", {}, about), made];
}

// ------------------------------------------------------------------ the end

function ends(view, vhost, name) {
  const own = at("queues", vhost, name);
  const purge = action(view, {
    text: "Purge messages",
    question: `Delete all messages that are ready in ${name}?`,
    danger: true,
    run: async () => {
      await request("DELETE", `${own}/contents`);
      return "The messages are deleted.";
    },
  });
  const drop = action(view, {
    text: "Delete queue",
    question: `Delete the queue ${name} and all its messages?`,
    danger: true,
    run: async () => {
      await request("DELETE", own);
      return `Queue ${name} is deleted.`;
    },
    then: () => {
      window.location.hash = page("queues");
    },
  });
  return h("div", { class: "row" }, purge, drop);
}
