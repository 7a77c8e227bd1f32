// Exchanges: the list, one with its bindings, and the list of all bindings.

import { at, exchangeName, get, request } from "./api.js";
import { bindForm, bindingColumns } from "./bindings.js";
import { entries, facts, link, page } from "./dom.js";
import { action, form, panel } from "./form.js";
import { listing, table } from "./list.js";
import { publishForm } from "./messages.js";
import { rate } from "./queues_page.js";
import { chosenVhost, inVhost, vhostField } from "./vhosts.js";
import { View } from "./view.js";

const TYPES = ["direct", "fanout", "topic", "headers"];

function features(one) {
  const found = [
    one.durable ? "durable" : "transient",
    one.auto_delete && "deleted after its last binding",
    one.internal && "internal",
  ];
  return found.filter(Boolean).join(", ");
}

const COLUMNS = [
  {
    label: "Name",
    key: "name",
    cell: (one) =>
      link(page("exchanges", one.vhost, exchangeName(one.name)), one.name || "(default exchange)"),
  },
  { label: "Vhost", key: "vhost", cell: (one) => one.vhost },
  { label: "Type", key: "type", cell: (one) => one.type },
  { label: "Policy", key: "policy", cell: (one) => one.policy },
  { label: "Features", cell: features },
  rate("In", "publish_in"),
  rate("Out", "publish_out"),
  { label: "Arguments", cell: (one) => entries(one.arguments) },
];

/** The list of exchanges. */
export function exchangesPage() {
  const view = new View("Exchanges");
  listing(view, {
    name: "exchanges",
    label: "Exchanges",
    path: () => inVhost("exchanges"),
    columns: COLUMNS.filter((one) => one.key !== "vhost" || chosenVhost() === null),
  });
  const declare = form(view, {
    label: "Add an exchange",
    key: "add-exchange",
    submit: "Add exchange",
    fields: [
      vhostField(),
      { name: "name", label: "Name", required: true },
      { name: "type", label: "Type", value: "direct", required: true, list: "known-types" },
      { name: "durable", label: "Durable", type: "checkbox", value: true },
      { name: "auto_delete", label: "Delete after the last binding", type: "checkbox" },
      { name: "internal", label: "Internal", type: "checkbox" },
      { name: "arguments", label: "Arguments", type: "json", hint: "JSON" },
    ],
    run: async ({ vhost, name, ...body }) => {
      await request("PUT", at("exchanges", vhost, name), { body });
      return `Exchange ${name} is there.`;
    },
  });
  view.add(panel("Add an exchange", declare));
  return view;
}

/** One exchange; `named` is its name in a path. */
export function exchangePage(vhost, named) {
  const name = named === exchangeName("") ? "" : named;
  const view = new View(`Exchange ${name || "(default exchange)"}`);
  const own = at("exchanges", vhost, named);
  const overview = (one) =>
    facts([
      ["Vhost", one.vhost],
      ["Type", one.type],
      ["Features", features(one)],
      ["Policy", one.policy],
      ["Arguments", entries(one.arguments)],
    ]);
  view.live((signal) => get(own, {}, signal), overview, "Overview");
  for (const [end, other, title] of [
    ["source", "destination", "Bindings from this exchange"],
    ["destination", "source", "Bindings to this exchange"],
  ]) {
    const load = (signal) => get(`${own}/bindings/${end}`, {}, signal);
    const columns = bindingColumns(view, other);
    view.live(load, (found) => table(title, columns, found, { titled: true }), title);
  }
  view.add(panel("Publish a message", publishForm(view, vhost, { exchange: name })));
  if (name !== "") {
    const drop = action(view, {
      text: "Delete exchange",
      question: `Delete the exchange ${name} and its bindings?`,
      danger: true,
      run: async () => {
        await request("DELETE", own);
        return `Exchange ${name} is deleted.`;
      },
      then: () => {
        window.location.hash = page("exchanges");
      },
    });
    view.add(panel("Add a binding", bindForm(view, vhost, { from: name })), panel("Delete", drop));
  }
  return view;
}

/** Return the types to suggest; those of plugins in RabbitMQ may be typed in. */
export function exchangeTypes() {
  return TYPES;
}

/** The list of bindings. */
export function bindingsPage() {
  const view = new View("Bindings");
  const vhost = { label: "Vhost", key: "vhost", cell: (one) => one.vhost };
  listing(view, {
    name: "bindings",
    label: "Bindings",
    path: () => inVhost("bindings"),
    filter: "source, destination or key",
    columns: [
      ...(chosenVhost() === null ? [vhost] : []),
      ...bindingColumns(view, "source", "destination"),
    ],
  });
  return view;
}
