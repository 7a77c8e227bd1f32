// One node: what it runs, what it uses, how it does, its settings; and its maintenance.

import { at, get, may, request, tryGet } from "./api.js";
import { ago, count, facts, h, mark, shown, size, when } from "./dom.js";
import { action, panel } from "./form.js";
import { table } from "./list.js";
import { View } from "./view.js";

const DAY_MS = 86_400_000;
const SOON_DAYS = 30;
const SLOW_SYNC_MS = 50;

/** Return a mark for the state of a node, and its text. */
export function stateOf(node) {
  if (!node.running) {
    return { kind: "bad", text: node.forgetting ? "down, being removed" : "down" };
  }
  const low = [node.mem_alarm && "memory", node.disk_free_alarm && "disk"].filter(Boolean);
  if (low.length) {
    return { kind: "bad", text: `low on ${low.join(", ")}` };
  }
  if (node.forgetting || node.being_drained) {
    return { kind: "warn", text: node.forgetting ? "being removed" : "in maintenance" };
  }
  return { kind: "ok", text: "running" };
}

/** One node, and its maintenance. */
export function nodePage(name) {
  const view = new View(`Node ${name}`);
  const own = at("nodes", name);
  view.about(`The node ${name}`);
  const load = async (signal) => {
    const node = await get(own, {}, signal);
    const said = await conditions(signal);
    return { node, condition: said.find((one) => one.node === name) || {} };
  };
  view.live(load, overview, "Overview");
  let last = null;
  const ports = async (signal) => {
    last = await get(at("overview"), { columns: "node,listeners" }, signal);
    return last;
  };
  view.live(ports, (found) => found.node === name && listeners(found.listeners), "");
  view.add(maintenance(view, name, own));
  if (may("administrator")) {
    const place = h("div", {});
    const show = async (event) => {
      if (event.target.open && place.childNodes.length === 0) {
        place.append(await settings(own));
      }
    };
    const opened = h("details", { class: "panel", on: { toggle: show } });
    opened.append(h("summary", {}, "Settings"), place);
    view.add(opened);
  }
  return view;
}

/** Return what the nodes say of themselves; nothing where the API does not tell it. */
async function conditions(signal) {
  try {
    return (await tryGet(at("conditions"), {}, signal)) || [];
  } catch (error) {
    if (error.permitted === false) {
      return [];
    }
    throw error;
  }
}

function overview({ node, condition }) {
  const { kind, text } = stateOf(node);
  const version = condition.version || versionOf(node);
  const about = facts([
    ["State", mark(kind, text)],
    ["Address", node.address],
    ["Version", version],
    ["Process", node.os_pid],
    ["Up for", ago(node.uptime)],
    ["Leads", count(node.queue_leaders)],
    ["Members of quorum queues", count(node.quorum_queue_members)],
    ["Queues on it alone", count(node.local_queues)],
  ]);
  const used = facts([
    ["Memory", of(node.mem_used, node.mem_limit, size)],
    ["Disk free", free(node.disk_free, node.disk_free_limit)],
    ["Files", of(node.fd_used, node.fd_total, count)],
    ["Sockets", of(node.sockets_used, node.sockets_total, count)],
    ["Processors", count(node.processors)],
    ["Log on disk", logOf(condition)],
  ]);
  const does = facts([
    ["Its loop is late by", milliseconds(condition.loop_lag_ms)],
    ["A sync takes", sync(condition.sync_ms)],
    ["Slow syncs", of(condition.slow_syncs, condition.syncs, count)],
    ["Clock is ahead by", milliseconds(condition.clock_off_ms)],
    ["Connections made, closed", pair(node, "connection_created", "connection_closed")],
    ["Queues declared, deleted", pair(node, "queue_declared", "queue_deleted")],
  ]);
  const places = facts([
    ["Data", node.db_dir],
    ["Configuration", (node.config_files || []).join(", ")],
    ["Log lines", (node.log_files || []).join(", ")],
  ]);
  return [h("div", { class: "columns" }, about, used, does, places), certificates(condition)];
}

function logOf({ wal_bytes, wal_files, segment_bytes }) {
  if (typeof wal_bytes !== "number") {
    return null;
  }
  const files = `${size(wal_bytes)} in ${count(wal_files)} files`;
  return segment_bytes ? `${files}, ${size(segment_bytes)} of older entries` : files;
}

function versionOf(node) {
  const known = (node.applications || []).find((one) => one.name.toLowerCase() === "warren");
  return known ? known.version : null;
}

function of(used, limit, write) {
  if (typeof used !== "number") {
    return null;
  }
  return typeof limit === "number" && limit > 0 ? `${write(used)} of ${write(limit)}` : write(used);
}

function free(bytes, least) {
  if (typeof bytes !== "number") {
    return null;
  }
  return `${size(bytes)}; publishers wait below ${size(least)}`;
}

function milliseconds(value) {
  return typeof value === "number" ? `${count(value, value < 10 ? 1 : 0)} ms` : null;
}

function sync(value) {
  if (typeof value !== "number" || value === 0) {
    return null;
  }
  return mark(value > SLOW_SYNC_MS ? "warn" : "ok", milliseconds(value));
}

function pair(node, made, gone) {
  return typeof node[made] === "number" ? `${count(node[made])}, ${count(node[gone])}` : null;
}

function certificates(condition) {
  const found = condition.certificates || [];
  if (found.length === 0) {
    return null;
  }
  const ends = (one) => {
    const days = Math.floor((one.ends_at - Date.now()) / DAY_MS);
    const kind = days < 0 ? "bad" : days < SOON_DAYS ? "warn" : "ok";
    return mark(kind, days < 0 ? "has ended" : `in ${count(days)} days`);
  };
  const columns = [
    { label: "File", cell: (one) => one.file },
    { label: "Ends", cell: ends },
    { label: "At", cell: (one) => when(one.ends_at) },
  ];
  return table("Certificates", columns, found);
}

function listeners(found) {
  if (!found) {
    return null;
  }
  const columns = [
    { label: "Protocol", cell: (one) => one.protocol },
    { label: "Address", cell: (one) => one.ip_address },
    { label: "Port", cell: (one) => one.port },
    { label: "TLS", cell: (one) => (one.tls ? "yes" : "no") },
  ];
  return table("Listeners", columns, found);
}

async function settings(own) {
  const columns = [
    { label: "Name", cell: (one) => one.name },
    { label: "Value", cell: (one) => shown(one.value) },
    { label: "From", cell: (one) => mark(one.origin === "default" ? "ok" : "warn", one.origin) },
    { label: "Sets", cell: (one) => one.meaning },
  ];
  try {
    const found = await get(`${own}/settings`);
    return table("All settings", columns, found);
  } catch (error) {
    return h("p", { class: "problem", role: "alert" }, error.message);
  }
}

function maintenance(view, name, own) {
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
  const buttons = h(
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
  return [buttons, panel("All queues", rebalance)];
}
