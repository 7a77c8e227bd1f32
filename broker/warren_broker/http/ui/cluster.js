// The cluster and its nodes.

import { at, get, may, request } from "./api.js";
import { addCharts, latestRate, sampled } from "./charts.js";
import { ago, count, facts, h, link, mark, page, size } from "./dom.js";
import { action, form, panel } from "./form.js";
import { table } from "./list.js";
import { stateOf } from "./node_page.js";
import { clusterPicture } from "./picture.js";
import { View } from "./view.js";

// ------------------------------------------------------------------ overview

const RATES = [
  ["Published", "publish"],
  ["Confirmed", "confirm"],
  ["Delivered", "deliver_get"],
  ["Acknowledged", "ack"],
  ["Redelivered", "redeliver"],
];

/** The cluster in numbers, and its nodes. */
export function overviewPage() {
  const view = new View("Overview");
  let last = {}; // asked for once: the sections are loaded in their order
  const overview = async (signal) => {
    last = await sampled(at("overview"), signal);
    return last;
  };
  view.live(overview, (found) => [firstSteps(found), totals(found)]);
  addCharts(
    view,
    () => last,
    (found) => found.queue_totals || {},
  );
  view.live((signal) => get(at("nodes"), {}, signal), nodes, "Nodes");
  if (may("monitoring")) {
    view.live((signal) => get(at("cluster-version"), {}, signal), versions(view), "Versions");
  }
  view.live(() => last, ports, "Listeners");
  view.add(panel("Definitions", definitions(view)));
  return view;
}

/** Return what to do first, while there is no queue. */
function firstSteps(found) {
  if ((found.object_totals || {}).queues !== 0) {
    return null;
  }
  const plain = (found.listeners || []).find((one) => one.protocol === "amqp");
  const uri = `amqp://USER:PASSWORD@${window.location.hostname}:${plain ? plain.port : 5672}`;
  return h(
    "section",
    { class: "first" },
    h("h2", {}, "First steps"),
    h(
      "ol",
      {},
      h("li", {}, link(page("queues"), "Add a queue"), ", or let an application declare its own."),
      h(
        "li",
        {},
        "Connect an application of AMQP 0.9.1 or 1.0, such as pika: ",
        h("code", {}, uri),
      ),
      h("li", {}, "Publish a first message: ", h("code", {}, "echo hello | warren publish QUEUE")),
      h(
        "li",
        {},
        "Read the queue with Spark: ",
        h("code", {}, 'spark.readStream.format("warren").option("queue", "QUEUE")'),
      ),
      h("li", {}, link(page("users"), "Add users"), " before clients come from elsewhere."),
    ),
  );
}

function totals(found) {
  const queues = found.queue_totals || {};
  const objects = found.object_totals || {};
  return h(
    "div",
    { class: "columns" },
    facts([
      ["Cluster", found.cluster_name],
      ["This node", link(page("nodes", found.node), found.node)],
      ["Version", `${found.product_name} ${found.product_version}`],
      ["API of RabbitMQ", found.rabbitmq_version],
    ]),
    facts([
      ["Messages ready", count(queues.messages_ready)],
      ["Messages unacknowledged", count(queues.messages_unacknowledged)],
      ["Messages in all", count(queues.messages)],
    ]),
    facts(RATES.map(([label, kind]) => [label, latestRate(found, kind)])),
    facts(
      ["connections", "channels", "exchanges", "queues", "consumers"].map((kind) => [
        kind[0].toUpperCase() + kind.slice(1),
        count(objects[kind]),
      ]),
    ),
  );
}

function ports(found) {
  const columns = [
    { label: "Protocol", cell: (one) => one.protocol },
    { label: "Address", cell: (one) => one.ip_address },
    { label: "Port", number: true, cell: (one) => one.port },
  ];
  const empty = "A user with the tag monitoring sees them.";
  return table(`Listeners of ${found.node}`, columns, found.listeners || [], { empty });
}

const VERSION_COLUMNS = [
  { label: "Name", cell: (one) => one.name },
  { label: "Oldest", number: true, cell: (one) => one.oldest },
  { label: "Newest", number: true, cell: (one) => one.newest },
  { label: "Upgrade", cell: (one) => one.holds_back && mark("warn", "holds it back") },
];

/** Return what shows the cluster's version and those that each node's program has. */
function versions(view) {
  return (found) => {
    const finish = () =>
      action(view, {
        text: "Finish the upgrade",
        tag: "administrator",
        danger: true,
        question: `Raise the cluster to version ${found.attainable}? No node can go back then.`,
        run: async () => {
          const now = await request("POST", at("cluster-version", "finish-upgrade"));
          return `The cluster has version ${now.version}.`;
        },
      });
    return [
      facts([["Cluster's version", found.version]]),
      table("Versions of the nodes' programs", VERSION_COLUMNS, found.nodes),
      found.attainable > found.version ? finish() : null,
    ];
  };
}

function definitions(view) {
  const save = action(view, {
    text: "Export definitions",
    tag: "administrator",
    run: async () => {
      const found = await request("GET", at("definitions"), { raw: true });
      const data = new Blob([found], { type: "application/json" });
      const address = URL.createObjectURL(data);
      h("a", { href: address, download: "definitions.json" }).click();
      URL.revokeObjectURL(address);
      return "The definitions are exported; they have the users' password hashes.";
    },
  });
  const load = form(view, {
    label: "Import definitions",
    key: "import",
    tag: "administrator",
    submit: "Import",
    fields: [{ name: "text", label: "To import", type: "area", rows: 6, required: true }],
    run: async ({ text }) => {
      const report = await request("POST", at("definitions"), { text });
      return report
        ? `Imported, but ${report.not_honoured_count} objects have no effect here.`
        : "The definitions are imported.";
    },
  });
  return [save, load];
}

// ------------------------------------------------------------------ nodes

const NODE_COLUMNS = [
  { label: "Name", cell: (one) => link(page("nodes", one.name), one.name) },
  { label: "State", cell: nodeState },
  { label: "Address", cell: (one) => one.address },
  { label: "Leaders", number: true, cell: (one) => count(one.queue_leaders) },
  { label: "Members", number: true, cell: (one) => count(one.quorum_queue_members) },
  { label: "Local queues", number: true, cell: (one) => count(one.local_queues) },
  told("Memory", "mem_used", (one) => `${size(one.mem_used)} of ${size(one.mem_limit)}`),
  told("Disk free", "disk_free", (one) => size(one.disk_free)),
  told("Up for", "uptime", (one) => ago(one.uptime)),
];

/** Return a column that is there where the API tells it. */
function told(label, key, cell) {
  const known = (one) => typeof one[key] === "number";
  return { label, number: true, cell: (one) => (known(one) ? cell(one) : ""), when: known };
}

function nodes(found) {
  const drawn = found.length > 1 ? clusterPicture(found, stateOf) : null;
  return [drawn, table("Nodes", NODE_COLUMNS, found, { titled: true })];
}

function nodeState(node) {
  const { kind, text } = stateOf(node);
  return mark(kind, text);
}
