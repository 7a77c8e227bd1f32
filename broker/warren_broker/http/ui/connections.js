// Connections and channels of clients.

import { at, get, request } from "./api.js";
import { count, entries, facts, h, link, mark, page, size, when } from "./dom.js";
import { form, panel } from "./form.js";
import { listing, table } from "./list.js";
import { rate } from "./queues_page.js";
import { chosenVhost, inVhost } from "./vhosts.js";
import { View } from "./view.js";

const COLUMNS = [
  {
    label: "Name",
    key: "name",
    cell: (one) => [
      link(page("connections", one.name), one.name),
      one.user_provided_name ? h("div", { class: "entry" }, one.user_provided_name) : null,
    ],
  },
  { label: "Vhost", key: "vhost", cell: (one) => one.vhost },
  { label: "User", key: "user", cell: (one) => one.user },
  { label: "Node", key: "node", cell: (one) => one.node },
  { label: "State", key: "state", cell: (one) => stateOf(one) },
  { label: "TLS", key: "ssl", cell: (one) => (one.ssl ? "yes" : "no") },
  { label: "Protocol", key: "protocol", cell: (one) => one.protocol },
  { label: "Channels", key: "channels", number: true, cell: (one) => count(one.channels) },
  octets("From client", "recv_oct"),
  octets("To client", "send_oct"),
];

/** Return a column with a rate of bytes, where the API tells it. */
function octets(label, kind) {
  const key = `${kind}_details`;
  return {
    label,
    key: `${key}.rate`,
    number: true,
    cell: (one) => (one[key] ? `${size(one[key].rate)}/s` : ""),
    when: (one) => Boolean(one[key]),
  };
}

function stateOf(one) {
  return mark(one.state === "running" ? "ok" : "warn", one.state);
}

/** Return the path of a list of all vhosts, or of the chosen one. */
function ofVhost(kind) {
  return chosenVhost() === null ? at(kind) : `${inVhost("vhosts")}/${kind}`;
}

/** The list of connections. */
export function connectionsPage() {
  const view = new View("Connections");
  const path = () => ofVhost("connections");
  listing(view, { name: "connections", label: "Connections", path, columns: COLUMNS });
  return view;
}

/** One connection. */
export function connectionPage(name) {
  const view = new View(`Connection ${name}`);
  const own = at("connections", name);
  const load = async (signal) => {
    const connection = await get(own, {}, signal);
    const channels = await get(`${own}/channels`, {}, signal);
    return { connection, channels };
  };
  view.live(load, overview, "Overview");
  const close = form(view, {
    label: "Close the connection",
    key: "close",
    submit: "Close connection",
    danger: true,
    fields: [
      {
        name: "reason",
        label: "Reason",
        value: "Closed via management UI",
        hint: "the client gets it",
      },
    ],
    run: async ({ reason }) => {
      await request("DELETE", own, { reason });
      window.location.hash = page("connections");
    },
  });
  view.add(panel("Close", close));
  return view;
}

function overview({ connection, channels }) {
  const about = facts([
    ["State", stateOf(connection)],
    ["Name given by the client", connection.user_provided_name],
    ["Node", connection.node],
    ["Vhost", connection.vhost],
    ["User", connection.user],
    ["Protocol", connection.protocol],
    ["TLS", connection.ssl ? "yes" : "no"],
    ["Connected at", when(connection.connected_at)],
    ["Authentication", connection.auth_mechanism],
    ["Heartbeat", seconds(connection.timeout)],
    ["Frame max", count(connection.frame_max)],
    ["Channel max", count(connection.channel_max)],
    ["Reads, writes", `${count(connection.recv_cnt)}, ${count(connection.send_cnt)}`],
    ["Client properties", entries(connection.client_properties)],
  ]);
  return [about, table("Channels", CHANNELS, channels)];
}

function seconds(value) {
  return typeof value === "number" ? `${value} s` : "";
}

// ------------------------------------------------------------------ channels

const CHANNELS = [
  {
    label: "Channel",
    key: "name",
    cell: (one) => {
      const name = (one.connection_details || {}).name;
      return name ? link(page("connections", name), one.name) : one.name;
    },
  },
  { label: "Vhost", key: "vhost", cell: (one) => one.vhost },
  { label: "User", key: "user", cell: (one) => one.user },
  { label: "Mode", cell: modeOf },
  {
    label: "Prefetch",
    key: "prefetch_count",
    number: true,
    cell: (one) => count(one.prefetch_count),
  },
  {
    label: "Unacked",
    key: "messages_unacknowledged",
    number: true,
    cell: (one) => count(one.messages_unacknowledged),
  },
  {
    label: "Unconfirmed",
    key: "messages_unconfirmed",
    number: true,
    cell: (one) => count(one.messages_unconfirmed),
  },
  rate("In", "publish"),
  rate("Out", "deliver_get"),
  {
    label: "Consumers",
    key: "consumer_count",
    cell: (one) =>
      (one.consumer_details || []).map((consumer) =>
        h("div", { class: "entry" }, consumer.consumer_tag, ": ", queueOf(consumer.queue)),
      ),
  },
];

function queueOf(queue) {
  return queue ? link(page("queues", queue.vhost, queue.name), queue.name) : "";
}

function modeOf(one) {
  const found = [one.confirm && "confirms", one.transactional && "transactions"];
  return found.filter(Boolean).join(", ");
}

/** The list of channels. */
export function channelsPage() {
  const view = new View("Channels");
  const path = () => ofVhost("channels");
  const about = "Channels of AMQP 0.9.1.";
  view.add(h("p", { class: "quiet-note" }, about));
  listing(view, { name: "channels", label: "Channels", path, columns: CHANNELS });
  return view;
}
