// The frame of the UI: login, menu, vhost, and the page that the address names.

import * as access from "./access.js";
import { at, get, logIn, logOut, resume, session, whoAmI } from "./api.js";
import * as cluster from "./cluster.js";
import * as connections from "./connections.js";
import { h, replace } from "./dom.js";
import * as exchanges from "./exchanges.js";
import { jobsPage } from "./jobs.js";
import { federationPage, shovelsPage } from "./links.js";
import { auditPage, logPage } from "./logs.js";
import { messagesPage } from "./messages_page.js";
import { nodePage } from "./node_page.js";
import { policiesPage } from "./policies.js";
import { queuePage } from "./queue_page.js";
import { queuesPage } from "./queues_page.js";
import { searchBox, searchByKey } from "./search.js";
import { sparkPage } from "./spark.js";
import { chosenVhost, chooseVhost } from "./vhosts.js";
import { THEMES, chooseTheme, theme } from "./theme.js";
import { View, INTERVALS_S, interval, setSeconds, shownError } from "./view.js";

/** Paths and their pages, with RabbitMQ's addresses; `menu` has an entry in the menu. */
const PAGES = [
  { path: "", menu: "Overview", make: cluster.overviewPage },
  { path: "connections", menu: "Connections", make: connections.connectionsPage },
  { path: "connections/:name", make: connections.connectionPage },
  { path: "channels", menu: "Channels", make: connections.channelsPage },
  { path: "exchanges", menu: "Exchanges", make: exchanges.exchangesPage },
  { path: "exchanges/:vhost/:name", make: exchanges.exchangePage },
  { path: "bindings", menu: "Bindings", make: exchanges.bindingsPage },
  { path: "queues", menu: "Queues", make: queuesPage },
  { path: "queues/:vhost/:name", make: queuePage },
  { path: "queues/:vhost/:name/messages", make: messagesPage },
  { path: "spark", menu: "Spark", make: sparkPage },
  { path: "jobs", menu: "Jobs", make: jobsPage },
  { path: "users", menu: "Users", make: access.usersPage },
  { path: "users/:name", make: access.userPage },
  { path: "vhosts", menu: "Vhosts", make: access.vhostsPage },
  { path: "vhosts/:name", make: access.vhostPage },
  { path: "policies", menu: "Policies", make: policiesPage },
  { path: "federation", menu: "Federation", make: federationPage },
  { path: "shovels", menu: "Shovels", make: shovelsPage },
  { path: "dynamic-shovels", make: shovelsPage },
  { path: "federation-upstreams", make: federationPage },
  { path: "nodes/:name", make: nodePage },
  { path: "audit", menu: "Audit", make: auditPage },
  { path: "log", menu: "Log", make: logPage },
];
const app = document.getElementById("app");
let view = null;

// ------------------------------------------------------------------ pages

/** Return the page of an address, and the names in it; null: there is none. */
function found(hash) {
  const parts = hash.replace(/^#?\/?/, "").split("/");
  for (const one of PAGES) {
    const pattern = one.path.split("/");
    const fits =
      pattern.length === parts.length &&
      pattern.every((part, at) => part.startsWith(":") || part === parts[at]);
    if (fits) {
      const named = parts.filter((_, at) => pattern[at].startsWith(":"));
      return { page: one, names: named.map(decodeURIComponent) };
    }
  }
  return null;
}

function made(hash) {
  try {
    const one = found(hash);
    return one ? one.page.make(...one.names) : new View("No such page");
  } catch (error) {
    const failed = new View("No such page");
    failed.say(shownError(error), true);
    return failed;
  }
}

function show() {
  if (view) {
    view.leave();
  }
  const hash = window.location.hash;
  view = made(hash);
  const heading = view.place.querySelector("h1");
  document.title = `${heading.textContent} – Warren`;
  const main = document.getElementById("main");
  main.replaceChildren(view.place);
  for (const one of document.querySelectorAll("nav a")) {
    const chosen = hash.replace(/^#?\/?/, "").split("/")[0] === one.dataset.path;
    if (chosen) {
      one.setAttribute("aria-current", "page");
    } else {
      one.removeAttribute("aria-current");
    }
  }
  heading.focus({ preventScroll: true });
  window.scrollTo(0, 0);
  knowVhosts();
  view.start();
}

// ------------------------------------------------------------------ frame

function frame() {
  const items = PAGES.filter((one) => one.menu).map((one) =>
    h("li", {}, h("a", { href: `#/${one.path}`, "data-path": one.path }, one.menu)),
  );
  const vhost = h("select", { id: "vhost", on: { change: changeVhost } });
  const pauses = INTERVALS_S.map((seconds) =>
    h(
      "option",
      { value: seconds, selected: seconds === interval() },
      seconds ? `every ${seconds} s` : "not by itself",
    ),
  );
  const refresh = h("select", { id: "interval", on: { change: changeInterval } }, pauses);
  const looks = THEMES.map(([value, text]) =>
    h("option", { value, selected: value === theme() }, text),
  );
  const look = h("select", { id: "theme", on: { change: changeTheme } }, looks);
  const tags = session.tags.length ? ` (${session.tags.join(", ")})` : "";
  app.replaceChildren(
    h(
      "header",
      {},
      h("a", { class: "skip", href: "#main", on: { click: skip } }, "To the content"),
      h("a", { class: "name", href: "#/" }, logo(), "Warren"),
      searchBox(),
      h("label", { for: "vhost" }, "Vhost"),
      vhost,
      h("label", { for: "interval" }, "Refresh"),
      refresh,
      h("button", { type: "button", on: { click: () => view.refresh() } }, "Now"),
      h("label", { for: "theme" }, "Colours"),
      look,
      h("a", { href: "ui/reference.html" }, "HTTP API"),
      h("span", { class: "user" }, session.user + tags),
      h("button", { type: "button", id: "log-out", on: { click: () => end("") } }, "Log out"),
    ),
    h("nav", { "aria-label": "Pages" }, h("ul", {}, items)),
    h("main", { id: "main" }),
    h("datalist", { id: "known-vhosts" }),
    h(
      "datalist",
      { id: "known-types" },
      exchanges.exchangeTypes().map((value) => h("option", { value })),
    ),
  );
}

function logo() {
  return h("img", { src: "ui/icon.svg", alt: "", width: 28, height: 28 });
}

function skip(event) {
  event.preventDefault();
  document.querySelector("#main h1").focus();
}

function changeInterval(event) {
  setSeconds(Number(event.target.value));
  view.refresh();
}

function changeTheme(event) {
  chooseTheme(event.target.value);
  show(); // charts are drawn in the new colours
}

function changeVhost(event) {
  chooseVhost(event.target.value === "" ? null : JSON.parse(event.target.value));
  show();
}

/** Fill the choice of vhosts; it stays as it is while the node does not answer. */
async function knowVhosts() {
  let names;
  try {
    names = (await get(at("vhosts"), { columns: "name" })).map((one) => one.name);
  } catch {
    return;
  }
  const select = document.getElementById("vhost");
  if (!select) {
    return; // the user has logged out meanwhile
  }
  const chosen = chosenVhost();
  if (chosen !== null && !names.includes(chosen)) {
    chooseVhost(null);
    show();
    return;
  }
  const all = h("option", { value: "", selected: chosen === null }, "all");
  const options = names.map((name) =>
    h("option", { value: JSON.stringify(name), selected: name === chosen }, name),
  );
  replace(select, all, options);
  const known = names.map((value) => h("option", { value }));
  replace(document.getElementById("known-vhosts"), known);
}

// ------------------------------------------------------------------ login

function loginPage(text) {
  const problem = h("p", { class: "problem", role: "alert", hidden: !text }, text);
  const field = (name, label, type, auto) => {
    const input = h("input", { id: name, name, type, autocomplete: auto });
    return [h("div", { class: "row" }, h("label", { for: name }, label), input), input];
  };
  const [userRow, user] = field("user", "User", "text", "username");
  const [passwordRow, password] = field("password", "Password", "password", "current-password");
  const [tokenRow, token] = field("token", "Token", "password", "off");
  const button = h("button", { type: "submit" }, "Log in");
  const submit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    problem.hidden = true;
    try {
      await logIn(user.value, password.value, token.value.trim());
      begin();
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
      button.disabled = false;
    }
  };
  const bearer = h("details", {}, h("summary", {}, "With a token (OAuth 2) instead"), tokenRow);
  const about = "The login stays in this tab until you log out or close it.";
  document.title = "Log in – Warren";
  app.replaceChildren(
    h(
      "main",
      { class: "login" },
      h("h1", {}, logo(), " Warren"),
      h(
        "form",
        { class: "form", "aria-label": "Log in", on: { submit } },
        [userRow, passwordRow, bearer, problem],
        h("div", { class: "row" }, button),
        h("small", {}, about),
      ),
    ),
  );
  user.focus();
}

function begin() {
  frame();
  show();
}

function end(text) {
  if (view) {
    view.leave();
    view = null;
    logOut();
    loginPage(text);
  }
}

async function start() {
  window.addEventListener("hashchange", () => view && show());
  window.addEventListener("keydown", searchByKey);
  window.addEventListener("login-refused", (event) => end(event.detail));
  if (!resume()) {
    loginPage("");
    return;
  }
  try {
    await whoAmI();
    begin();
  } catch (error) {
    if (error.status === 401) {
      logOut();
    }
    loginPage(error.message);
  }
}

start();
