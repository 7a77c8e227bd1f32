// Jobs over messages: redrive, move, copy, delete, requeue; of one or of all that match; undo.

import { at, get, request } from "./api.js";
import { ago, count, h, link, mark, page, when } from "./dom.js";
import { action, confirmed, form } from "./form.js";
import { listing, table } from "./list.js";
import { inVhost } from "./vhosts.js";
import { View } from "./view.js";

const HOUR_MS = 3_600_000;
const COUNTED_PAGES_MAX = 50;
const ENDED = ["cancelled", "done", "undone"];
const MARKS = { running: "ok", done: "ok", undone: "ok", returning: "ok", undoing: "ok" };
const ACTIONS = [
  ["redrive", "Redrive: each to the queue in which it died"],
  ["move", "Move to another queue"],
  ["copy", "Copy to another queue"],
  ["requeue", "Requeue: to the end of this queue, as new"],
  ["delete", "Delete"],
];

/** Return what a job will do, in words. */
function willDo(job, many) {
  const { action: kind, to_queue: to, undo_ms: undo, rate } = job;
  const does = {
    redrive: `${many} go back to the queues in which each of them died; others stay`,
    move: `${many} move to ${to}`,
    copy: `${many} are copied to ${to}, and stay here as well`,
    requeue: `${many} go to the end of this queue, as if they were new`,
    delete: `${many} are deleted`,
  }[kind];
  const pace = rate ? `, at most ${count(rate)} per second` : "";
  const back = undo
    ? `For ${ago(undo)} after its end the job can be undone.`
    : "It cannot be undone.";
  return `${does}${pace}. ${back}`;
}

/** Return how many ready messages match a selection; null: more than are counted here. */
async function matching(path, selection, signal) {
  let found = 0;
  let after = "";
  for (let pages = 0; pages < COUNTED_PAGES_MAX; pages += 1) {
    const told = await get(`${path}/letters`, { ...selection, after }, signal);
    found += told.groups.reduce((sum, one) => sum + one.messages, 0);
    after = told.next;
    if (!after) {
      return found;
    }
  }
  return null;
}

/** Return a form that begins a job over all that match; selection() returns what is looked at. */
export function jobForm(view, vhost, queue, selection) {
  const path = at("queues", vhost, queue);
  return form(view, {
    label: "Do with all that match",
    key: "job",
    submit: "Count, then ask",
    keep: true,
    fields: [
      { name: "action", label: "What", type: "select", options: ACTIONS },
      { name: "to_queue", label: "To the queue", hint: "for move and copy" },
      { name: "rate", label: "Per second", type: "number", min: 0, optional: true },
      { name: "hours", label: "Undo for, hours", type: "number", value: 1, min: 0, max: 168 },
    ],
    run: async ({ action: kind, to_queue, rate, hours }) => {
      const chosen = selection();
      const many = await matching(path, chosen, view.abort.signal);
      if (many === 0) {
        return "No ready message matches: there is nothing to do.";
      }
      const job = { action: kind, rate: rate || 0, undo_ms: hours * HOUR_MS };
      if (kind === "move" || kind === "copy") {
        job.to_queue = to_queue;
      }
      const told = many === null ? "Very many ready messages" : messages(many);
      if (!(await confirmed(willDo(job, told), "Begin"))) {
        return "Nothing was done.";
      }
      const begun = await begin(path, { ...chosen, ...job });
      return `Job ${begun.job} has begun.`;
    },
  });
}

function messages(number) {
  return number === 1 ? "1 ready message" : `${count(number)} ready messages`;
}

function begin(path, body) {
  return request("POST", `${path}/jobs`, { body: { ...body, call: crypto.randomUUID() } });
}

/** Return buttons and a form for one message that is ready; null for any other. */
export function oneMessage(view, vhost, queue, one, whole) {
  if (one.state !== "ready") {
    return null;
  }
  const path = at("queues", vhost, queue);
  const place = { index: one.index, ordinal: one.ordinal, undo_ms: HOUR_MS };
  const died = Array.isArray(one.headers["x-death"]);
  const button = (text, kind, danger) =>
    action(view, {
      text,
      key: `${text} ${one.index} ${one.ordinal}`,
      question: willDo({ action: kind, undo_ms: HOUR_MS }, "One message: it").replaceAll(
        "it are ",
        "it is ",
      ),
      danger,
      run: async () => {
        const begun = await begin(path, { ...place, action: kind });
        return `Job ${begun.job} has begun.`;
      },
    });
  const area = h("textarea", { rows: 6, spellcheck: "false", "aria-label": "Repaired body" });
  const repair = action(view, {
    text: "Redrive as repaired",
    key: `repair ${one.index} ${one.ordinal}`,
    question: "One message: it goes back with this body. The job can be undone for 1 h.",
    run: async () => {
      const begun = await begin(path, { ...place, action: "redrive", body: area.value });
      return `Job ${begun.job} has begun.`;
    },
  });
  const open = async (event) => {
    if (event.target.open && area.value === "") {
      area.value = await whole();
    }
  };
  return [
    h(
      "div",
      { class: "row" },
      died ? button("Redrive", "redrive") : null,
      button("Requeue", "requeue"),
      button("Delete", "delete", true),
    ),
    died
      ? h(
          "details",
          { class: "panel", on: { toggle: open } },
          h("summary", {}, "Repair the body"),
          area,
          h("div", { class: "row" }, repair),
        )
      : null,
  ];
}

// ------------------------------------------------------------------ lists

/** Return a table of jobs with what may be done with each. */
export function jobsTable(view, jobs, several) {
  const columns = [
    {
      label: "Queue",
      when: () => several,
      cell: (one) => link(page("queues", one.vhost, one.queue, "messages"), one.queue),
    },
    { label: "Job", number: true, cell: (one) => count(one.job) },
    { label: "What", cell: (one) => [one.action, one.to ? ` to ${one.to}` : ""] },
    { label: "Which", cell: (one) => one.selection },
    { label: "State", cell: stateOf },
    { label: "Match", number: true, cell: (one) => count(one.matched) },
    { label: "Done", number: true, cell: (one) => count(one.done) },
    { label: "Left", number: true, cell: (one) => count(one.left) },
    { label: "Began", cell: (one) => when(one.began_at) },
    { label: "By", cell: (one) => one.user },
    { label: "Actions", cell: (one) => steering(view, one) },
  ];
  return table("Jobs", columns, jobs, { empty: "No jobs." });
}

function stateOf(one) {
  const undo = one.undo_until - Date.now();
  const told = [
    one.why,
    undo > 0 && one.kept ? `can be undone for ${ago(undo)}` : "",
    one.state === "undone" ? `${count(one.back)} brought back` : "",
    one.consumed ? `${count(one.consumed)} were consumed at the target and not brought back` : "",
  ].filter(Boolean);
  return [
    mark(one.why ? "warn" : MARKS[one.state] || "warn", one.state),
    told.map((text) => h("div", { class: "entry" }, text)),
  ];
}

function steering(view, one) {
  const path = `${at("queues", one.vhost, one.queue)}/jobs/${at(String(one.job))}`;
  const button = (text, word, done, question, danger) =>
    action(view, {
      text,
      label: `${text} job ${one.job} of ${one.queue}`,
      key: `${word} ${one.vhost} ${one.queue} ${one.job}`,
      question,
      danger,
      run: async () => {
        await request("POST", `${path}/${word}`);
        return done;
      },
    });
  const ended = ENDED.includes(one.state);
  const undo =
    `Of ${count(one.kept)} messages those come back to ${one.queue} which no consumer has taken ` +
    "from the queues to which they went; they leave these.";
  return h(
    "div",
    { class: "row" },
    one.state === "running" ? button("Pause", "pause", "The job is paused.") : null,
    one.state === "paused" ? button("Resume", "resume", "The job is resumed.") : null,
    one.state === "running" || one.state === "paused"
      ? button("Cancel", "cancel", "The job is cancelled: what it has done stays done.")
      : null,
    one.kept && one.undo_until ? button("Undo", "undo", "The job is being undone.", undo) : null,
    ended
      ? button(
          "Forget",
          "forget",
          "The job is forgotten.",
          one.kept ? `Forget job ${one.job}? It cannot be undone any more.` : "",
          one.kept > 0,
        )
      : null,
  );
}

/** The list of jobs of all queues. */
export function jobsPage() {
  const view = new View("Jobs");
  const path = () => inVhost("jobs");
  view.add(h("p", { class: "quiet-note" }, "Jobs begin at the page of a queue's messages."));
  listing(view, {
    name: "jobs",
    label: "Jobs",
    path,
    filter: false,
    show: (jobs) => jobsTable(view, jobs, true),
  });
  return view;
}

/** Return a form that counts messages by what they have in common; choose(values) takes a group. */
export function groupForm(view, vhost, queue, selection, choose) {
  const place = h("div", {});
  const made = form(view, {
    label: "Group messages",
    key: "group",
    submit: "Group",
    keep: true,
    fields: [
      {
        name: "by",
        label: "By",
        type: "select",
        options: [
          ["reason,origin", "reason and queue of the death"],
          ["hour", "hour"],
          ["exchange", "exchange"],
          ["routing_key", "routing key"],
          ["header:", "a header, named below"],
        ],
      },
      { name: "header", label: "Header", hint: "such as x-exception" },
    ],
    run: async ({ by, header }) => {
      const asked = { ...selection(), by: by === "header:" ? by + header : by };
      const found = await get(`${at("queues", vhost, queue)}/letters`, asked, view.abort.signal);
      place.replaceChildren(groups(found, by, choose));
      return `${count(found.looked)} messages looked at${found.next ? ", there are more" : ""}.`;
    },
  });
  return [made, place];
}

function groups(found, by, choose) {
  const keys = found.groups.length ? Object.keys(found.groups[0].values) : [];
  const chosen = (values) => {
    const given = Object.entries(values).map(([key, value]) =>
      key.startsWith("header:") ? ["header", `${key.slice(7)}=${value}`] : [key, value],
    );
    return Object.fromEntries(
      given.filter(([key]) => ["reason", "origin", "hour", "header"].includes(key)),
    );
  };
  const columns = [
    ...keys.map((key) => ({ label: key, cell: (one) => one.values[key] || "–" })),
    { label: "Messages", number: true, cell: (one) => count(one.messages) },
    { label: "First", cell: (one) => when(one.first_at) },
    { label: "Last", cell: (one) => when(one.last_at) },
    {
      label: "Look",
      when: (one) => Object.keys(chosen(one.values)).length > 0,
      cell: (one) =>
        h("button", { type: "button", on: { click: () => choose(chosen(one.values)) } }, "These"),
    },
  ];
  return table("Groups", columns, found.groups);
}
