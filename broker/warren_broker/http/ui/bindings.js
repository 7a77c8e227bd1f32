// Bindings as pages of exchanges and queues show, add and remove them.

import { at, exchangeName, request } from "./api.js";
import { entries, link, page } from "./dom.js";
import { action, form } from "./form.js";

/** Return a link to an end of a binding. */
function endLink(kind, vhost, name) {
  if (kind === "queue") {
    return link(page("queues", vhost, name), name);
  }
  return link(page("exchanges", vhost, exchangeName(name)), name || "(default exchange)");
}

function pathOf(one) {
  const kind = one.destination_type === "queue" ? "q" : "e";
  return at("bindings", one.vhost, "e", exchangeName(one.source), kind, one.destination);
}

/** Return the columns of a table of bindings; ends: source, destination or both. */
export function bindingColumns(view, ...ends) {
  const source = {
    label: "From exchange",
    key: "source",
    cell: (one) => endLink("exchange", one.vhost, one.source),
  };
  const destination = {
    label: "To",
    key: "destination",
    cell: (one) => [
      `${one.destination_type} `,
      endLink(one.destination_type, one.vhost, one.destination),
    ],
  };
  return [
    ...(ends.includes("source") ? [source] : []),
    ...(ends.includes("destination") ? [destination] : []),
    { label: "Routing key", key: "routing_key", cell: (one) => one.routing_key },
    { label: "Arguments", cell: (one) => entries(one.arguments) },
    { label: "Actions", cell: (one) => (one.source === "" ? null : unbind(view, one)) },
  ];
}

function unbind(view, one) {
  const what = `${one.source} to ${one.destination} with key "${one.routing_key}"`;
  return action(view, {
    text: "Unbind",
    label: `Unbind ${what}`,
    key: `unbind ${JSON.stringify([one.vhost, one.source, one.destination, one.properties_key])}`,
    question: `Remove the binding of ${what}?`,
    danger: true,
    run: async () => {
      await request("DELETE", `${pathOf(one)}/${at(one.properties_key)}`);
      return "The binding is removed.";
    },
  });
}

/** Return a form that binds; from: the name of the source, or to: {kind, name}. */
export function bindForm(view, vhost, { from, to }) {
  const fields = [];
  if (from === undefined) {
    fields.push({ name: "from", label: "From exchange", required: true });
  }
  if (to === undefined) {
    const options = [
      ["q", "queue"],
      ["e", "exchange"],
    ];
    fields.push({ name: "kind", label: "To a", type: "select", options });
    fields.push({ name: "to", label: "Named", required: true });
  }
  fields.push({ name: "routing_key", label: "Routing key" });
  fields.push({ name: "arguments", label: "Arguments", type: "json", hint: "JSON" });
  return form(view, {
    label: "Add a binding",
    key: "bind",
    submit: "Bind",
    fields,
    run: async (given) => {
      const source = exchangeName(from ?? given.from);
      const [kind, name] = to ? [to.kind, to.name] : [given.kind, given.to];
      const body = { routing_key: given.routing_key, arguments: given.arguments };
      await request("POST", at("bindings", vhost, "e", source, kind, name), { body });
      return "It is bound.";
    },
  });
}
