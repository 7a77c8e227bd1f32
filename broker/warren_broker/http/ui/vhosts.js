// The vhost that lists are restricted to, as chosen at the top of each page.

import { at } from "./api.js";

const KEPT = "warren-vhost";

/** Return the chosen vhost; null: all that the user sees. */
export function chosenVhost() {
  return sessionStorage.getItem(KEPT);
}

/** Choose a vhost; null: all. */
export function chooseVhost(name) {
  if (name === null) {
    sessionStorage.removeItem(KEPT);
  } else {
    sessionStorage.setItem(KEPT, name);
  }
}

/** Return the path of a list, restricted to the chosen vhost. */
export function inVhost(...parts) {
  const chosen = chosenVhost();
  return chosen === null ? at(...parts) : at(...parts, chosen);
}

/** Return the field of a form that asks for a vhost. */
export function vhostField(label = "Vhost") {
  const value = chosenVhost() ?? "/";
  return { name: "vhost", label, value, required: true, list: "known-vhosts" };
}
