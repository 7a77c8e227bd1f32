// What Spark does with queues: readers with their claims, sinks with their batches; and relays.

import { at, get, request } from "./api.js";
import { ago, count, facts, h, link, mark, page, when } from "./dom.js";
import { action } from "./form.js";
import { listing, table } from "./list.js";
import { inVhost } from "./vhosts.js";
import { View } from "./view.js";

const LATE_MS = 5 * 60 * 1000;
const SINK_QUEUES = 50;
const AGAIN =
  "The query is told of it, and fails: start it again, and it continues with what is there then.";

// ------------------------------------------------------------------ readers

/** Return a table of readers. rows: {queue, reader}; of several queues with their names. */
export function readersTable(view, rows, several) {
  const columns = [
    { label: "Queue", when: () => several, cell: ({ queue }) => queueLink(queue) },
    { label: "Reader", cell: ({ reader }) => reader.name },
    { label: "Query", cell: ({ reader }) => queryOf(reader.read_by) },
    { label: "Batch", number: true, cell: ({ reader }) => count((reader.read_by || {}).batch) },
    { label: "Behind", number: true, cell: ({ queue }) => count(behind(queue)) },
    { label: "Open claims", cell: ({ reader }) => openClaims(reader) },
    { label: "Settled up to", number: true, cell: ({ reader }) => count(reader.settled) },
    { label: "Heard", cell: ({ reader }) => heard(reader) },
    { label: "Forgotten in", cell: ({ reader }) => ago(reader.expires_in_ms) },
    { label: "Epoch", number: true, cell: ({ reader }) => count(reader.epoch) },
    { label: "Actions", cell: ({ queue, reader }) => readerActions(view, queue, reader) },
  ];
  return table("Readers", columns, rows);
}

function queueLink(queue) {
  return link(page("queues", queue.vhost, queue.name), queue.name);
}

function behind(queue) {
  return queue.messages_ready + queue.messages_claimed;
}

function queryOf(read) {
  if (!read) {
    return "";
  }
  return read.name ? [read.name, h("div", { class: "entry" }, read.query)] : read.query;
}

function openClaims(reader) {
  const { settled, open_claims: open, bound, in_parts: parts } = reader;
  const range = `${count(open)}, from ${count(settled + 1)} on`;
  const told = bound.map(
    (one) => `claim ${one.number} is settled with batch ${one.batch} of sink ${one.sink}`,
  );
  if (parts) {
    told.push(`${count(parts)} messages of claims that were divided come next`);
  }
  if (reader.failed_in_row) {
    told.push(`${count(reader.failed_in_row)} failures in a row`);
  }
  return [open ? range : "none", told.map((one) => h("div", { class: "entry" }, one))];
}

function heard(reader) {
  const past = reader.heard_ago_ms ?? Date.now() - reader.last_heard_ms;
  const kind = past > LATE_MS && reader.open_claims ? "warn" : "ok";
  return mark(kind, `${ago(past)} ago`);
}

function readerActions(view, queue, reader) {
  const path = `${at("queues", queue.vhost, queue.name)}/readers/${at(reader.name)}`;
  const { settled, open_claims: open } = reader;
  const claims = open === 1 ? "claim" : `${count(open)} claims`;
  const button = (text, question, run, danger) =>
    action(view, {
      text,
      label: `${text}: ${reader.name} of ${queue.name}`,
      key: `${text} ${queue.vhost} ${queue.name} ${reader.name}`,
      question,
      danger,
      run,
    });
  const release = async (number) => {
    const body = { number, epoch: -1 };
    const found = await request("POST", `${path}/release`, { body });
    return `${count(found.messages)} messages are ready again.`;
  };
  const settle = async () => {
    const body = { number: settled + open, epoch: reader.epoch };
    const found = await request("POST", `${path}/settle`, { body });
    return `${count(found.messages)} messages are settled.`;
  };
  const from = `The open ${claims} of ${reader.name}`;
  return h(
    "div",
    { class: "row" },
    open
      ? button(
          "Release",
          `${from}: up to ${count(queue.messages_claimed)} claimed messages of ${queue.name} are ` +
            `ready again, and may be read twice. Claims that a batch decides about go by that ` +
            `batch. ${AGAIN}`,
          () => release(settled + 1),
          true,
        )
      : null,
    open
      ? button(
          "Settle",
          `${from}, up to number ${settled + open}: their messages are taken as done, and leave ` +
            `the queue for good. Do it only when their batches are known to be committed.`,
          settle,
          true,
        )
      : null,
    button(
      "Forget",
      `Forget ${reader.name}? ${open ? `Its open ${claims} go back to the queue. ` : ""}` +
        `The queue forgets what it had settled; a query with this reader begins anew. ${AGAIN}`,
      () => release(0),
      true,
    ),
  );
}

// ------------------------------------------------------------------ sinks

/** Return a table of runs of sinks. rows: {queue, run}. */
export function sinksTable(view, rows, several) {
  const columns = [
    { label: "Queue", when: () => several, cell: ({ queue }) => queueLink(queue) },
    { label: "Sink", cell: ({ run }) => run.sink },
    { label: "Run", cell: ({ run }) => run.run },
    { label: "Last batch", number: true, cell: ({ run }) => lastBatch(run) },
    { label: "Stages", number: true, cell: ({ run }) => count(run.stages) },
    { label: "Staged", number: true, cell: ({ run }) => count(run.messages_staged) },
    { label: "Epoch", number: true, cell: ({ run }) => count(run.epoch) },
    { label: "Forgotten in", cell: ({ run }) => ago(run.expires_in_ms) },
    { label: "Actions", cell: ({ queue, run }) => forgetSink(view, queue, run) },
  ];
  return table("Sinks", columns, rows);
}

function lastBatch(run) {
  return run.last_batch < 0 ? "none" : count(run.last_batch);
}

function forgetSink(view, queue, run) {
  const named = `run ${run.run} of sink ${run.sink}`;
  const staged = run.stages
    ? `${count(run.messages_staged)} staged messages are dropped: a driver that still publishes ` +
      "them is refused, and stages its batch again. "
    : "";
  return action(view, {
    text: "Forget",
    label: `Forget ${named}`,
    key: `forget ${queue.vhost} ${queue.name} ${run.sink} ${run.run}`,
    question:
      `Have ${queue.name} forget ${named}? ${staged}` +
      "A batch that was published before is then published again if it comes again: do it for a " +
      "sink that does not come back, or begins with a new checkpoint.",
    danger: true,
    run: async () => {
      const path = `${at("queues", queue.vhost, queue.name)}/sinks/${at(run.sink)}`;
      const query = { run: run.run, force: run.stages > 0 };
      const found = await request("DELETE", path, { query });
      return `${count(found.runs)} forgotten, ${count(found.messages_staged)} messages dropped.`;
    },
  });
}

/** Return the runs of sinks that a queue knows, as rows of a table; none without the right. */
export async function sinksOf(queue, signal) {
  try {
    const path = `${at("queues", queue.vhost, queue.name)}/sinks`;
    const found = await get(path, { count: 100 }, signal);
    return found.runs.map((run) => ({ queue, run }));
  } catch (error) {
    if (error.permitted === false || error.status === 404) {
      return [];
    }
    throw error;
  }
}

// ------------------------------------------------------------------ relays

/** Return a table of the shovels and links that take messages to other clusters. */
export function relaysTable(view, queue) {
  const columns = [
    { label: "Relay", cell: (one) => one.name },
    { label: "Messages", number: true, cell: (one) => count(one.messages) },
    {
      label: "Connection",
      cell: (one) =>
        one.away_since
          ? [mark("warn", "away"), ` since ${when(one.away_since)}`]
          : mark("ok", "connected"),
    },
    { label: "Ready again in", cell: (one) => ago(one.ready_in_ms) },
    { label: "Actions", cell: (one) => releaseRelay(view, queue, one) },
  ];
  return table("Relays", columns, queue.relays);
}

function releaseRelay(view, queue, one) {
  if (!one.away_since) {
    return "";
  }
  return action(view, {
    text: "Release",
    label: `Release what is kept for ${one.name}`,
    key: `relay ${one.name}`,
    question:
      `${count(one.messages)} messages that ${queue.name} keeps for ${one.name} are ready for ` +
      "any consumer at once. What it had published without a confirm is then in the world twice: " +
      "do it for a relay that does not come back.",
    danger: true,
    run: async () => {
      const path = `${at("queues", queue.vhost, queue.name)}/relays/release`;
      const found = await request("POST", path, { body: { relay: one.name } });
      return `${count(found.messages)} messages are ready again.`;
    },
  });
}

// ------------------------------------------------------------------ the page of all

const COLUMNS = "name,vhost,messages_ready,messages_claimed,messages_staged,readers,relays";

/** Readers and sinks of all queues. */
export function sparkPage() {
  const view = new View("Spark");
  const path = () => inVhost("queues");
  listing(view, {
    name: "readers",
    label: "Readers",
    path,
    query: () => ({ columns: COLUMNS, having: "readers" }),
    show: (queues) => {
      const rows = queues.flatMap((queue) => queue.readers.map((reader) => ({ queue, reader })));
      return rows.length ? readersTable(view, rows, true) : none("No query reads a queue.");
    },
  });
  const sinks = async (signal) => {
    const query = { columns: COLUMNS, having: "sinks", page: 1, page_size: SINK_QUEUES };
    const found = await get(path(), query, signal);
    const rows = [];
    for (const queue of found.items) {
      rows.push(...(await sinksOf(queue, signal)));
    }
    return { rows, left: found.filtered_count - found.items.length };
  };
  view.live(sinks, ({ rows, left }) => [
    rows.length ? sinksTable(view, rows, true) : none("No query writes to a queue."),
    left > 0 ? none(`${count(left)} more queues have sinks: see their pages.`) : null,
  ]);
  return view;
}

function none(text) {
  return h("p", { class: "none" }, text);
}

/** Return what Spark and relays do with one queue; null: nothing. */
export function sparkOf(view, queue, runs) {
  const readers = (queue.readers || []).map((reader) => ({ queue, reader }));
  const shown = [
    readers.length ? readersTable(view, readers) : null,
    runs.length ? sinksTable(view, runs) : null,
    (queue.relays || []).length ? relaysTable(view, queue) : null,
  ];
  if (shown.every((one) => one === null)) {
    return null;
  }
  const told = facts([
    ["Claimed", queue.messages_claimed ? count(queue.messages_claimed) : null],
    ["Staged", queue.messages_staged ? count(queue.messages_staged) : null],
  ]);
  return [h("h2", {}, "Readers, sinks and relays"), told, ...shown];
}
