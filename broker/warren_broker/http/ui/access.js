// Users, vhosts, and the permissions of users in vhosts.

import { at, get, request } from "./api.js";
import { entries, facts, h, link, mark, page } from "./dom.js";
import { action, form, panel } from "./form.js";
import { listing, table } from "./list.js";
import { View } from "./view.js";

const TAGS = "such as administrator, monitoring, policymaker, management; none: no login here";
const LIMITS = {
  users: ["user-limits", ["max-connections", "max-channels"]],
  vhosts: ["vhost-limits", ["max-connections", "max-queues"]],
};

/** Return the tags of a user as a text. */
function tagsOf(user) {
  return Array.isArray(user.tags) ? user.tags.join(", ") : user.tags;
}

function remove(view, { text, label, question, path, done, then }) {
  const run = async () => {
    await request("DELETE", path());
    return done;
  };
  return action(view, { text, label, question, danger: true, run, then, tag: "administrator" });
}

// ------------------------------------------------------------------ users

/** The list of users. */
export function usersPage() {
  const view = new View("Users");
  const columns = [
    { label: "Name", key: "name", cell: (one) => link(page("users", one.name), one.name) },
    { label: "Tags", key: "tags", cell: tagsOf },
    { label: "Password", cell: (one) => (one.password_hash ? "yes" : mark("warn", "none")) },
    { label: "Limits", cell: (one) => entries(one.limits) },
  ];
  listing(view, { name: "users", label: "Users", path: () => at("users"), columns });
  view.add(panel("Add a user", userForm(view)));
  return view;
}

function userForm(view, known) {
  const own = known === undefined ? [{ name: "name", label: "Name", required: true }] : [];
  const kept = known === undefined ? "empty: no login with a password" : "empty: it stays";
  return form(view, {
    label: known === undefined ? "Add a user" : "Change the user",
    key: "user",
    tag: "administrator",
    submit: known === undefined ? "Add user" : "Change user",
    fields: [
      ...own,
      { name: "password", label: "Password", type: "password", hint: kept },
      { name: "again", label: "Password again", type: "password" },
      { name: "tags", label: "Tags", hint: TAGS },
    ],
    run: async ({ name = known, password, again, tags }) => {
      if (password !== again) {
        throw new Error("The passwords are not the same.");
      }
      const body = { tags, ...(await secret(known, password)) };
      await request("PUT", at("users", name), { body });
      return `User ${name} is there.`;
    },
  });
}

async function secret(known, password) {
  if (password) {
    return { password };
  }
  if (known === undefined) {
    return {};
  }
  const { password_hash, hashing_algorithm } = await get(at("users", known));
  return { password_hash, hashing_algorithm };
}

/** One user. */
export function userPage(name) {
  const view = new View(`User ${name}`);
  const own = at("users", name);
  const about = (user) =>
    facts([
      ["Tags", tagsOf(user) || "none"],
      ["Password", user.password_hash ? "yes" : "none"],
      ["Limits", entries(user.limits)],
    ]);
  view.live((signal) => get(own, {}, signal), about, "Overview");
  grants(view, own, { user: name });
  view.add(
    panel("Change password or tags", userForm(view, name)),
    panel("Set a limit", limitForm(view, "users", name)),
    panel(
      "Delete",
      remove(view, {
        text: "Delete user",
        question: `Delete the user ${name}?`,
        path: () => own,
        done: `User ${name} is deleted.`,
        then: () => {
          window.location.hash = page("users");
        },
      }),
    ),
  );
  return view;
}

// ------------------------------------------------------------------ vhosts

/** The list of vhosts. */
export function vhostsPage() {
  const view = new View("Vhosts");
  const columns = [
    { label: "Name", key: "name", cell: (one) => link(page("vhosts", one.name), one.name) },
    { label: "Description", key: "description", cell: (one) => one.description },
    { label: "Tags", cell: (one) => (one.tags || []).join(", ") },
    { label: "Default queue type", cell: (one) => one.default_queue_type },
    { label: "Tracing", key: "tracing", cell: (one) => (one.tracing ? "on" : "off") },
  ];
  listing(view, { name: "vhosts", label: "Vhosts", path: () => at("vhosts"), columns });
  const add = form(view, {
    label: "Add a vhost",
    key: "vhost",
    tag: "administrator",
    submit: "Add vhost",
    fields: [
      { name: "name", label: "Name", required: true },
      { name: "description", label: "Description" },
      { name: "tags", label: "Tags" },
    ],
    run: async ({ name, description, tags }) => {
      await request("PUT", at("vhosts", name), { body: { description, tags } });
      return `Vhost ${name} is there.`;
    },
  });
  view.add(panel("Add a vhost", add));
  return view;
}

/** One vhost. */
export function vhostPage(name) {
  const view = new View(`Vhost ${name}`);
  const own = at("vhosts", name);
  const about = (vhost) =>
    facts([
      ["Description", vhost.description],
      ["Tags", (vhost.tags || []).join(", ")],
      ["Default queue type", vhost.default_queue_type],
      ["Tracing", vhost.tracing ? "on" : "off"],
    ]);
  view.live((signal) => get(own, {}, signal), about, "Overview");
  grants(view, own, { vhost: name });
  const limits = (found) => entries((found[0] || {}).value) || "None.";
  view.live((signal) => get(at("vhost-limits", name), {}, signal), limits, "Limits");
  view.add(
    panel("Set a limit", limitForm(view, "vhosts", name)),
    panel(
      "Delete",
      remove(view, {
        text: "Delete vhost",
        question: `Delete the vhost ${name} with all its queues and messages?`,
        path: () => own,
        done: `Vhost ${name} is deleted.`,
        then: () => {
          window.location.hash = page("vhosts");
        },
      }),
    ),
  );
  return view;
}

function limitForm(view, of, name) {
  const [kind, names] = LIMITS[of];
  return form(view, {
    label: "Set a limit",
    key: "limit",
    tag: "administrator",
    submit: "Set limit",
    fields: [
      { name: "limit", label: "Limit", type: "select", options: names },
      { name: "value", label: "Value", hint: "a number; empty: no limit", type: "text" },
    ],
    run: async ({ limit, value }) => {
      const path = at(kind, name, limit);
      if (value.trim() === "") {
        await request("DELETE", path);
        return `${limit} is removed.`;
      }
      await request("PUT", path, { body: { value: Number(value) } });
      return `${limit} is ${value}.`;
    },
  });
}

// ------------------------------------------------------------------ permissions

const PATTERNS = ["configure", "write", "read"];
const GRANTS = [
  ["permissions", "Permissions", PATTERNS],
  ["topic-permissions", "Topic permissions", ["exchange", "write", "read"]],
];

/** Add tables of permissions and forms to set them; given: {user} or {vhost}; the form asks. */
function grants(view, own, given) {
  const asked = given.user === undefined ? "user" : "vhost";
  for (const [kind, title, fields] of GRANTS) {
    const columns = [
      {
        label: asked === "user" ? "User" : "Vhost",
        cell: (one) => link(page(`${asked}s`, one[asked]), one[asked]),
      },
      ...fields.map((field) => ({ label: words(field), cell: (one) => h("code", {}, one[field]) })),
      { label: "Actions", cell: (one) => clear(view, kind, one) },
    ];
    const load = (signal) => get(`${own}/${kind}`, {}, signal);
    view.live(load, (found) => table(title, columns, found, { titled: true }), title);
    const set = grantForm(view, { kind, title, fields, given, asked });
    view.add(panel(`Set ${title.toLowerCase()}`, set));
  }
}

function words(field) {
  return field[0].toUpperCase() + field.slice(1);
}

function grantForm(view, { kind, title, fields, given, asked }) {
  const label = asked === "user" ? "User" : "Vhost";
  const list = asked === "user" ? undefined : "known-vhosts";
  return form(view, {
    label: `Set ${title.toLowerCase()}`,
    key: kind,
    tag: "administrator",
    submit: "Set",
    fields: [
      { name: asked, label, required: true, value: asked === "vhost" ? "/" : "", list },
      ...fields.map((name) => ({
        name,
        label: name === "exchange" ? "Exchange" : `${words(name)} (regular expression)`,
        value: name === "exchange" ? "amq.topic" : ".*",
      })),
    ],
    run: async (all) => {
      const { user, vhost } = { ...given, ...all };
      const body = Object.fromEntries(fields.map((name) => [name, all[name]]));
      await request("PUT", at(kind, vhost, user), { body });
      return `${title} of ${user} in ${vhost} are set.`;
    },
  });
}

function clear(view, kind, one) {
  const parts = kind === "permissions" ? [] : [one.exchange];
  const what = `${one.user} in ${one.vhost}${parts.length ? ` on ${one.exchange}` : ""}`;
  return remove(view, {
    text: "Clear",
    label: `Clear ${kind} of ${what}`,
    question: `Remove the ${kind} of ${what}?`,
    path: () => at(kind, one.vhost, one.user, ...parts),
    done: "They are removed.",
  });
}
