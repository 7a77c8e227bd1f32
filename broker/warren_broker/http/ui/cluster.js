// The cluster and its nodes.

import { at, get, may, request } from "./api.js";
import { addCharts, latestRate, sampled } from "./charts.js";
import { count, facts, h, link, mark, page } from "./dom.js";
import { action, form, panel } from "./form.js";
import { table } from "./list.js";
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
  view.live(overview, totals);
  addCharts(view, () => last, (found) => found.queue_totals || {});
  view.live((signal) => get(at("nodes"), {}, signal), nodes, "Nodes");
  if (may("monitoring")) {
    view.live((signal) => get(at("cluster-version"), {}, signal), versions(view), "Versions");
  }
  view.live(() => last, ports, "Listeners");
  view.add(panel("Definitions", definitions(view)));
  return view;
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
  { label: "Alarms", cell: alarms },
  { label: "Address", cell: (one) => one.address },
  { label: "Leaders", number: true, cell: (one) => count(one.queue_leaders) },
  { label: "Members", number: true, cell: (one) => count(one.quorum_queue_members) },
  { label: "Local queues", number: true, cell: (one) => count(one.local_queues) },
  told("Memory", "mem_used", (one) => `${mib(one.mem_used)} of ${mib(one.mem_limit)}`),
  told("Disk free", "disk_free", (one) => mib(one.disk_free)),
  told("Up for", "uptime", (one) => duration(one.uptime)),
];

/** Return a column that is there where the API tells it. */
function told(label, key, cell) {
  const known = (one) => typeof one[key] === "number";
  return { label, number: true, cell: (one) => (known(one) ? cell(one) : ""), when: known };
}

function mib(bytes) {
  return typeof bytes === "number" ? `${count(Math.round(bytes / 2 ** 20))} MiB` : "";
}

function duration(ms) {
  const minutes = Math.floor(ms / 60000);
  const days = Math.floor(minutes / 1440);
  const clock = `${Math.floor((minutes % 1440) / 60)} h ${minutes % 60} min`;
  return days ? `${days} d ${clock}` : clock;
}

function nodes(found) {
  return table("Nodes", NODE_COLUMNS, found, { titled: true });
}

function nodeState(node) {
  if (!node.running) {
    return mark("bad", node.forgetting ? "down, being removed" : "down");
  }
  if (node.forgetting) {
    return mark("warn", "being removed");
  }
  return node.being_drained ? mark("warn", "in maintenance") : mark("ok", "running");
}

function alarms(node) {
  const found = [node.mem_alarm && "memory", node.disk_free_alarm && "disk"].filter(Boolean);
  return found.length ? mark("bad", `low on ${found.join(", ")}`) : "none";
}

/** One node, and its maintenance. */
export function nodePage(name) {
  const view = new View(`Node ${name}`);
  const own = at("nodes", name);
  const overview = (node) =>
    facts(NODE_COLUMNS.slice(1).map((one) => [one.label, one.cell(node)]));
  view.live((signal) => get(own, {}, signal), overview, "Overview");
  const change = (text, verb, question, done, danger) =>
    action(view, {
      text,
      question,
      danger,
      tag: "administrator",
      run: async () => {
        await (verb ? request("POST", `${own}/${verb}`) : request("DELETE", own));
        return done;
      },
    });
  view.add(
    h(
      "div",
      { class: "row" },
      change(
        "Drain",
        "drain",
        `Put ${name} into maintenance? It closes its clients' connections; its leaders move.`,
        `${name} goes into maintenance.`,
      ),
      change("Revive", "revive", null, `${name} leaves maintenance.`),
      change(
        "Forget",
        "",
        `Remove ${name} from the cluster for ever? Members of queues on it are removed.`,
        `${name} is being removed.`,
        true,
      ),
    ),
  );
  const rebalance = action(view, {
    text: "Rebalance leaders",
    tag: "administrator",
    question: "Spread the leaders of queues over the nodes?",
    run: async () => {
      await request("POST", at("rebalance", "queues"));
      return "The leaders of queues are spread over the nodes.";
    },
  });
  view.add(panel("All queues", rebalance));
  return view;
}
