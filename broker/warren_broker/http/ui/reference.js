// The node's OpenAPI document as a page: every request with its parameters, body and answers.

import { ApiError, get, logIn, resume } from "./api.js";
import { h } from "./dom.js";

const MAIN = document.getElementById("reference");
const NESTED = 4; // levels of a schema that are shown within another one

/** Return a schema in short: its type, and what is in it, references followed. */
function shape(schema, all, level = 0) {
  if (schema.$ref) {
    const name = schema.$ref.split("/").pop();
    return level < NESTED ? shape(all[name], all, level) : name;
  }
  const either = schema.anyOf || schema.oneOf;
  if (either) {
    return either.map((one) => shape(one, all, level)).join(" | ");
  }
  if (schema.enum) {
    return schema.enum.map((one) => JSON.stringify(one)).join(" | ");
  }
  if (schema.type === "array") {
    return `[${shape(schema.items || {}, all, level)}]`;
  }
  if (!schema.properties) {
    return schema.type || "any value";
  }
  const inner = "  ".repeat(level + 1);
  const needed = schema.required || [];
  const lines = Object.entries(schema.properties).map(([key, one]) => {
    const named = needed.includes(key) ? key : `${key}?`;
    return `${inner}${named}: ${shape(one, all, level + 1)}`;
  });
  return `{\n${lines.join("\n")}\n${"  ".repeat(level)}}`;
}

function schemaOf(part) {
  return part?.content?.["application/json"]?.schema;
}

function parameters(operation, all) {
  const rows = operation.parameters.map((one) =>
    h("tr", {}, h("td", {}, one.name), h("td", {}, one.in), h("td", {}, shape(one.schema, all))),
  );
  const heads = ["name", "in", "type"].map((one) => h("th", { scope: "col" }, one));
  const table = h("table", {}, h("caption", {}, "Parameters"), h("tr", {}, heads), rows);
  return rows.length ? h("div", { class: "wide" }, table) : [];
}

function section(title, schema, all) {
  return schema ? [h("h3", {}, title), h("pre", { tabindex: "0" }, shape(schema, all))] : [];
}

function shown(path, method, operation, all) {
  const name = `${method.toUpperCase()} /api${path}`;
  const answers = Object.entries(operation.responses).map(([status, one]) =>
    section(`${status}: ${one.description}`, schemaOf(one) || { type: "no body" }, all),
  );
  const more = operation.summary ? h("small", {}, ` ${operation.summary}`) : [];
  return h(
    "details",
    { class: "panel", "data-name": `${name} ${operation.summary || ""}`.toLowerCase() },
    h("summary", {}, h("code", {}, name), more),
    h("p", {}, `Needs the user tag ${operation["x-tag"] || "management"}.`),
    parameters(operation, all),
    section("Body", schemaOf(operation.requestBody), all),
    answers,
  );
}

function page(found) {
  const all = found.components.schemas;
  const items = Object.entries(found.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, one]) => shown(path, method, one, all)),
  );
  const filter = h("input", { id: "filter", type: "search", autocomplete: "off" });
  filter.addEventListener("input", () => {
    const words = filter.value.toLowerCase().split(/\s+/);
    for (const one of items) {
      one.hidden = !words.every((word) => one.dataset.name.includes(word));
    }
  });
  const source = h("a", { href: "../" }, "the management UI");
  return [
    h("h1", {}, `${found.info.title} ${found.info.version}`),
    h("p", {}, `OpenAPI ${found.openapi}: GET /api/openapi.json; `, source),
    h("p", { class: "row" }, h("label", { for: "filter" }, "Filter"), filter),
    items,
  ];
}

async function load() {
  MAIN.replaceChildren(...h("div", {}, page(await get("openapi.json"))).childNodes);
}

function logInFirst() {
  const user = h("input", { id: "user", name: "user", autocomplete: "username" });
  const password = h("input", {
    id: "password",
    name: "password",
    type: "password",
    autocomplete: "current-password",
  });
  const problem = h("p", { class: "problem", role: "alert" });
  const form = h(
    "form",
    {},
    h("h1", {}, "Requests of the HTTP API"),
    h("p", {}, h("label", { for: "user" }, "User "), user),
    h("p", {}, h("label", { for: "password" }, "Password "), password),
    h("p", {}, h("button", { type: "submit" }, "Log in")),
    problem,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await logIn(user.value, password.value);
      await load();
    } catch (error) {
      problem.textContent = error.message;
    }
  });
  MAIN.replaceChildren(form);
}

try {
  if (resume()) {
    await load();
  } else {
    logInFirst();
  }
} catch (error) {
  if (!(error instanceof ApiError)) {
    throw error;
  }
  logInFirst();
}
