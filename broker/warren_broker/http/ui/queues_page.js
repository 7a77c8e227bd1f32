// The list of queues, and a form to declare one.

import { at, request } from "./api.js";
import { count, link, mark, page } from "./dom.js";
import { form, panel } from "./form.js";
import { listing } from "./list.js";
import { chosenVhost, inVhost, vhostField } from "./vhosts.js";
import { View } from "./view.js";

const ASKED = [
  ...["name", "vhost", "type", "policy", "operator_policy", "state", "durable", "auto_delete"],
  ...["exclusive", "messages", "messages_ready", "messages_unacknowledged", "consumers"],
  ...["leader", "node", "members", "online", "message_stats", "arguments"],
].join(",");

/** Return a mark for the state of a queue. */
export function stateOf(queue) {
  if (queue.state !== "running") {
    return mark("bad", queue.leader === null ? "no leader" : queue.state || "unknown");
  }
  const missing = (queue.members || []).length - (queue.online || []).length;
  return missing > 0 ? mark("warn", `running, ${missing} down`) : mark("ok", "running");
}

/** Return the rate of a kind of message_stats; nothing where the API does not tell it. */
export function rateOf(object, kind) {
  const details = (object.message_stats || {})[`${kind}_details`];
  return details && typeof details.rate === "number" ? `${count(details.rate, 1)}/s` : "";
}

/** Return a column with a rate, where the API tells it. */
export function rate(label, kind) {
  const cell = (one) => rateOf(one, kind);
  const key = `message_stats.${kind}_details.rate`;
  return { label, key, number: true, cell, when: (one) => cell(one) !== "" };
}

const number = (label, key) => ({ label, key, number: true, cell: (one) => count(one[key]) });

const COLUMNS = [
  {
    label: "Name",
    key: "name",
    cell: (one) => link(page("queues", one.vhost, one.name), one.name || "(empty name)"),
  },
  { label: "Vhost", key: "vhost", cell: (one) => one.vhost },
  { label: "Type", key: "type", cell: (one) => one.type },
  { label: "Policy", key: "policy", cell: (one) => one.policy },
  { label: "State", key: "state", cell: stateOf },
  number("Ready", "messages_ready"),
  number("Unacked", "messages_unacknowledged"),
  number("Total", "messages"),
  number("Consumers", "consumers"),
  rate("In", "publish"),
  rate("Out", "deliver_get"),
  { label: "Leader", key: "leader", cell: (one) => one.leader || one.node },
  { label: "Members", cell: (one) => (one.members || [one.node]).join(", ") },
];

/** The list of queues. */
export function queuesPage() {
  const view = new View("Queues");
  listing(view, {
    name: "queues",
    label: "Queues",
    path: () => inVhost("queues"),
    query: () => ({ columns: ASKED }),
    columns: COLUMNS.filter((one) => one.key !== "vhost" || chosenVhost() === null),
    empty: "No queues.",
  });
  view.add(panel("Add a queue", declareForm(view)));
  return view;
}

function declareForm(view) {
  return form(view, {
    label: "Add a queue",
    key: "add-queue",
    submit: "Add queue",
    fields: [
      vhostField(),
      { name: "name", label: "Name", required: true },
      {
        name: "type",
        label: "Type",
        type: "select",
        options: [["", "as the vhost's default"], "quorum", "classic"],
      },
      { name: "durable", label: "Durable", type: "checkbox", value: true },
      { name: "auto_delete", label: "Delete after the last consumer", type: "checkbox" },
      {
        name: "arguments",
        label: "Arguments",
        type: "json",
        hint: 'JSON, such as {"x-max-length": 1000}',
      },
    ],
    run: async ({ vhost, name, type, durable, auto_delete, arguments: given }) => {
      const all = type ? { ...given, "x-queue-type": type } : given;
      const body = { durable, auto_delete, arguments: all };
      await request("PUT", at("queues", vhost, name), { body });
      return `Queue ${name} is there.`;
    },
  });
}
