// Shovels, and links of federated queues and exchanges: their state, and the last error in words.

import { at, exchangeName, request } from "./api.js";
import { count, entries, h, link, mark, page } from "./dom.js";
import { action, form, panel } from "./form.js";
import { listing } from "./list.js";
import { chosenVhost, inVhost, vhostField } from "./vhosts.js";
import { View } from "./view.js";

const MARKS = { running: "ok", starting: "warn", paused: "warn" };

function stateOf(state, reason) {
  const kind = MARKS[state] || "bad";
  return [mark(kind, state), reason ? h("div", { class: "reason" }, reason) : null];
}

// ------------------------------------------------------------------ shovels

/** The list of shovels. */
export function shovelsPage() {
  const view = new View("Shovels");
  const columns = [
    { label: "Name", key: "name", cell: (one) => one.name },
    { label: "Vhost", key: "vhost", cell: (one) => one.vhost },
    { label: "Type", key: "type", cell: (one) => one.type },
    { label: "Node", key: "node", cell: (one) => one.node },
    { label: "State", key: "state", cell: shovelState },
    { label: "From", cell: (one) => end(one, "src") },
    { label: "To", cell: (one) => end(one, "dest") },
    { label: "Moved", key: "forwarded", number: true, cell: (one) => count(one.forwarded) },
    { label: "Under way", key: "pending", number: true, cell: (one) => count(one.pending) },
    { label: "Left", key: "remaining", number: true, cell: (one) => count(one.remaining) },
    { label: "Actions", cell: (one) => shovelActions(view, one) },
  ];
  listing(view, {
    name: "shovels",
    label: "Shovels",
    path: () => inVhost("shovels"),
    columns,
    empty: "No shovels.",
  });
  view.add(panel("Add a shovel", shovelForm(view)));
  return view;
}

function shovelState(one) {
  const blocked = {
    blocked: "the destination is blocked",
    refused: "the destination refuses messages",
  };
  const why = one.reason || (one.state === "running" ? blocked[one.blocked_status] : "");
  return stateOf(one.state, why);
}

function end(one, side) {
  const place = one[`${side}_queue`] || one[`${side}_address`];
  const exchange = one[`${side}_exchange`];
  return [
    place || (exchange ? `exchange ${exchange}` : "as published"),
    h("div", { class: "entry" }, one[`${side}_uri`]),
  ];
}

function shovelActions(view, one) {
  if (!one.vhost) {
    return "in the nodes' configuration";
  }
  const own = () => at("shovels", "vhost", one.vhost, one.name);
  const change = (text, method, verb, done, question) =>
    action(view, {
      text,
      label: `${text} ${one.name}`,
      key: `${text} ${one.vhost} ${one.name}`,
      tag: "policymaker",
      question,
      danger: Boolean(question),
      run: async () => {
        await request(method, verb ? `${own()}/${verb}` : own());
        return done;
      },
    });
  const pausing =
    one.state === "paused"
      ? change("Resume", "DELETE", "pause", `${one.name} is resumed.`)
      : change("Pause", "PUT", "pause", `${one.name} is paused.`);
  return h(
    "div",
    { class: "row" },
    change("Restart", "DELETE", "restart", `${one.name} is restarted.`),
    pausing,
    change("Delete", "DELETE", "", `${one.name} is deleted.`, `Delete the shovel ${one.name}?`),
  );
}

function shovelForm(view) {
  const address = "amqp://user:password@host/vhost; amqp:///vhost is this cluster, as you";
  const ending = [
    ["never", "never"],
    ["queue-length", "after what is in the queue now"],
  ];
  return form(view, {
    label: "Add a shovel",
    key: "shovel",
    tag: "policymaker",
    submit: "Add shovel",
    fields: [
      vhostField(),
      { name: "name", label: "Name", required: true },
      { name: "src-uri", label: "From: URI", value: "amqp://", required: true, hint: address },
      { name: "src-queue", label: "From: queue", required: true },
      { name: "dest-uri", label: "To: URI", value: "amqp://", required: true },
      { name: "dest-queue", label: "To: queue" },
      { name: "dest-exchange", label: "To: exchange", hint: "instead of a queue" },
      { name: "src-delete-after", label: "Ends", type: "select", options: ending },
      { name: "more", label: "Further keys", type: "json", hint: "JSON; they replace those above" },
    ],
    run: async ({ vhost, name, more, ...given }) => {
      const filled = Object.entries(given).filter(([, value]) => value !== "");
      const value = { ...Object.fromEntries(filled), ...more };
      await request("PUT", at("parameters", "shovel", vhost, name), { body: { value } });
      return `Shovel ${name} is set.`;
    },
  });
}

// ------------------------------------------------------------------ federation

/** The status of federation, and its upstreams. */
export function federationPage() {
  const view = new View("Federation");
  const status = [
    { label: "Upstream", key: "upstream", cell: (one) => one.upstream },
    { label: "Vhost", key: "vhost", cell: (one) => one.vhost },
    { label: "Of", key: "type", cell: federated },
    { label: "There", cell: (one) => one.upstream_queue || one.upstream_exchange },
    { label: "URI", cell: (one) => one.uri },
    { label: "Node", key: "node", cell: (one) => one.node },
    { label: "State", key: "status", cell: (one) => stateOf(one.status, one.error) },
  ];
  listing(view, {
    name: "federation-links",
    label: "Federation links",
    path: () => inVhost("federation-links"),
    columns: status,
    filter: false,
    empty: "No links: a policy with federation-upstream or federation-upstream-set makes them.",
  });
  parameters(view, "federation-upstream", "Upstreams", "upstream", true);
  parameters(view, "federation-upstream-set", "Upstream sets", "set", false);
  return view;
}

function federated(one) {
  if (one.type === "queue") {
    return ["queue ", link(page("queues", one.vhost, one.queue), one.queue)];
  }
  const address = page("exchanges", one.vhost, exchangeName(one.exchange));
  return ["exchange ", link(address, one.exchange)];
}

function parameters(view, component, label, word, adds) {
  const chosen = chosenVhost();
  const columns = [
    { label: "Vhost", key: "vhost", cell: (one) => one.vhost },
    { label: "Name", key: "name", cell: (one) => one.name },
    { label: "Definition", cell: (one) => definition(one.value) },
    { label: "Actions", cell: (one) => drop(view, component, one, word) },
  ];
  const path = () =>
    chosen === null ? at("parameters", component) : at("parameters", component, chosen);
  listing(view, { name: component, label, path, columns });
  if (!adds) {
    return;
  }
  const fields = [
    vhostField(),
    { name: "name", label: "Name", required: true },
    { name: "uri", label: "URI", required: true, hint: "amqp://user:password@host/vhost" },
    { name: "more", label: "Further keys", type: "json", hint: 'JSON, such as {"max-hops": 2}' },
  ];
  const add = form(view, {
    label: `Add an ${word}`,
    key: component,
    tag: "policymaker",
    submit: `Add ${word}`,
    fields,
    run: async ({ vhost, name, uri, more }) => {
      const body = { value: { uri, ...more } };
      await request("PUT", at("parameters", component, vhost, name), { body });
      return `The ${word} ${name} is set.`;
    },
  });
  view.add(panel(`Add an ${word}`, add));
}

function definition(value) {
  return Array.isArray(value) ? value.map((one) => h("div", {}, entries(one))) : entries(value);
}

function drop(view, component, one, word) {
  return action(view, {
    text: "Delete",
    label: `Delete ${word} ${one.name} of vhost ${one.vhost}`,
    key: `${component} ${one.vhost} ${one.name}`,
    tag: "policymaker",
    question: `Delete the ${word} ${one.name}?`,
    danger: true,
    run: async () => {
      await request("DELETE", at("parameters", component, one.vhost, one.name));
      return `The ${word} ${one.name} is deleted.`;
    },
  });
}
