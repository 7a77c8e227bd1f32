// Forms, buttons and questions. What the API refuses is said where it was asked for.

import { may } from "./api.js";
import { h } from "./dom.js";
import { shownError } from "./view.js";

let numbers = 0;

/**
 * Return a form. fields: {name, label, type, value, options, required, optional, hint, min, max};
 * type is text, password, number, checkbox, select, area or json; an optional number that is left
 * out is "". `run(values)` makes the request, and returns what to say. There is none for a user
 * without `tag`.
 */
export function form(view, { label, fields, submit, run, keep, danger, key, tag }) {
  if (!may(tag)) {
    return null;
  }
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const button = h("button", { type: "submit", class: danger ? "danger" : null }, submit);
  const inputs = fields.map((field) => ({ field, input: inputOf(field) }));
  const send = async (event) => {
    event.preventDefault();
    problem.hidden = true;
    button.disabled = true;
    try {
      const said = await run(valuesOf(inputs));
      if (said !== undefined) {
        view.say(said);
      }
      if (!keep) {
        element.reset();
      }
      await view.changed();
    } catch (error) {
      problem.textContent = shownError(error);
      problem.hidden = false;
    } finally {
      button.disabled = false;
    }
  };
  const element = h(
    "form",
    {
      class: "form",
      autocomplete: "off",
      "aria-label": label,
      "data-form": key,
      on: { submit: send },
    },
    inputs.map(({ field, input }) => row(field, input)),
    problem,
    h("div", { class: "row" }, button),
  );
  return element;
}

function row(field, input) {
  const hint = field.hint ? h("small", { id: `${input.id}-hint` }, field.hint) : null;
  if (hint) {
    input.setAttribute("aria-describedby", hint.id);
  }
  return h("div", { class: "row" }, h("label", { for: input.id }, field.label), input, hint);
}

function inputOf(field) {
  numbers += 1;
  const known = { id: `field-${numbers}`, name: field.name, required: Boolean(field.required) };
  if (field.type === "select") {
    const options = field.options.map((one) => (Array.isArray(one) ? one : [one, one]));
    return h(
      "select",
      known,
      options.map(([value, text]) => h("option", { value, selected: value === field.value }, text)),
    );
  }
  if (field.type === "area" || field.type === "json") {
    const spell = { rows: field.rows || 3, spellcheck: "false" };
    return h("textarea", { ...known, ...spell }, field.value ?? "");
  }
  if (field.type === "checkbox") {
    return h("input", { ...known, type: "checkbox", checked: Boolean(field.value) });
  }
  const type = field.type || "text";
  const fill = type === "password" ? "new-password" : "off"; // not with the user's own login
  const more = { min: field.min, max: field.max, autocomplete: fill, list: field.list };
  return h("input", { ...known, ...more, type, value: field.value ?? "" });
}

/** Return the values by name; throws Error for what is no JSON or no number. */
function valuesOf(inputs) {
  const found = {};
  for (const { field, input } of inputs) {
    if (field.type === "checkbox") {
      found[field.name] = input.checked;
    } else if (field.type === "number") {
      const none = field.optional && input.value === "";
      found[field.name] = none ? "" : Number(input.value);
    } else if (field.type === "json") {
      found[field.name] = json(field.label, input.value);
    } else {
      found[field.name] = input.value;
    }
  }
  return found;
}

function json(label, text) {
  if (text.trim() === "") {
    return {};
  }
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Error(`${label}: this is no JSON (${error.message}).`);
  }
  JSON.parse(text, (_, one) => {
    if (Number.isInteger(one) && !Number.isSafeInteger(one)) {
      throw new Error(`${label}: ${one} is beyond 2^53, which browsers do not keep. Use warren.`);
    }
    return one;
  });
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new Error(`${label}: an object is expected, such as {"x-max-length": 1000}.`);
  }
  return value;
}

/** Return a part of the page that opens and closes; null for one with nothing in it. */
export function panel(title, ...children) {
  if (children.flat().every((one) => one === null)) {
    return null;
  }
  return h("details", { class: "panel" }, h("summary", {}, title), children);
}

/**
 * Return a button. `question` is asked before; `run` makes the request and returns what to say;
 * `then` is done afterwards instead of a refresh. There is none for a user without `tag`.
 */
export function action(view, { text, label, question, run, then, danger, key, tag }) {
  if (!may(tag)) {
    return null;
  }
  const press = async (event) => {
    if (question && !(await confirmed(question, text))) {
      return;
    }
    const button = event.target;
    button.disabled = true;
    try {
      const said = await run();
      view.say(said);
      await (then ? then() : view.changed());
    } catch (error) {
      view.say(shownError(error), true);
    } finally {
      button.disabled = false;
    }
  };
  const named = { "aria-label": label, "data-key": key || label || text };
  const looks = { type: "button", class: danger ? "danger" : null };
  return h("button", { ...looks, ...named, on: { click: press } }, text);
}

/** Ask a question; return whether the user agrees. */
export function confirmed(question, yes) {
  return new Promise((resolve) => {
    const end = (answer) => () => {
      dialog.close();
      dialog.remove();
      resolve(answer);
    };
    const dialog = h(
      "dialog",
      { "aria-label": question, on: { cancel: end(false) } },
      h("p", {}, question),
      h("button", { type: "button", class: "danger", on: { click: end(true) } }, yes),
      h("button", { type: "button", autofocus: true, on: { click: end(false) } }, "Cancel"),
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}
