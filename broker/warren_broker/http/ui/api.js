// The HTTP API: the only place that sends requests, with the user's login as a header of each.

const BASE = new URL("../api/", import.meta.url);
const KEPT = "warren-login";

/**
 * A request that has failed; `message` is for the user. status 0: there was no answer.
 * permitted: false where the user is known, and may not do it.
 */
export class ApiError extends Error {
  constructor(status, message, permitted = true) {
    super(message);
    this.status = status;
    this.permitted = permitted;
  }
}

// ------------------------------------------------------------------ login

/** The login of this tab: `authorization` is the header, `user` the name to show. */
export const session = { authorization: "", user: "", tags: [] };

/** Take up the login that this tab had before it was loaded again. */
export function resume() {
  session.authorization = sessionStorage.getItem(KEPT) || "";
  return session.authorization !== "";
}

/** Forget the login. */
export function logOut() {
  sessionStorage.removeItem(KEPT);
  session.authorization = "";
}

/** Log in; a token is used instead of user and password where it is given. Throws ApiError. */
export async function logIn(user, password, token) {
  const bytes = new TextEncoder().encode(`${user}:${password}`);
  const basic = `Basic ${btoa(Array.from(bytes, (one) => String.fromCharCode(one)).join(""))}`;
  session.authorization = token ? `Bearer ${token}` : basic;
  try {
    await whoAmI();
  } catch (error) {
    session.authorization = "";
    throw error;
  }
  sessionStorage.setItem(KEPT, session.authorization);
}

/** Ask for name and tags of the user. Throws ApiError. */
export async function whoAmI() {
  const found = await get(at("whoami"));
  session.user = found.name;
  session.tags = found.tags;
}

/**
 * Return whether the user may do what needs a tag; null: any user of the API may. Permissions of
 * vhosts are the node's to check.
 */
export function may(tag) {
  return !tag || session.tags.includes(tag) || session.tags.includes("administrator");
}

// ------------------------------------------------------------------ paths

/** Return the path of a resource; the names are encoded. Throws ApiError. */
export function at(...parts) {
  // 1. A queue is named `..`.  2. A browser takes that, encoded too, for the folder above.  3. To
  // purge it, DELETE queues/VHOST/../contents, would delete the queue `contents`.
  const dots = parts.find((one) => one === "." || one === "..");
  if (dots !== undefined) {
    throw new ApiError(0, `A browser cannot ask for an object named "${dots}". Use warren.`);
  }
  return parts.map(encodeURIComponent).join("/");
}

/** Return the name of an exchange in a path. */
export function exchangeName(name) {
  return name === "" ? "amq.default" : name;
}

// ------------------------------------------------------------------ requests

/**
 * Make a request; return the body of the answer, null without one. Throws ApiError.
 * text: JSON that is sent as it is, instead of `body`; raw: so is the answer returned. Numbers
 * beyond 2^53 would not survive being parsed.
 */
export async function request(method, path, { body, text, raw, query, reason, signal } = {}) {
  const address = new URL(path, BASE);
  for (const [key, value] of Object.entries(query || {})) {
    address.searchParams.set(key, value);
  }
  const headers = { authorization: session.authorization, "content-type": "application/json" };
  if (reason) {
    headers["x-reason"] = inHeader(reason);
  }
  let answer, came;
  try {
    answer = await fetch(address, {
      method,
      headers,
      body: body === undefined ? text : JSON.stringify(body),
      credentials: "omit", // without it the browser asks for a password by itself after a 401
      cache: "no-store",
      redirect: "error",
      signal,
    });
    came = await answer.text();
  } catch (error) {
    if (error.name === "AbortError") {
      throw error;
    }
    throw new ApiError(0, "The node does not answer: it is stopped, restarts or is out of reach.");
  }
  if (!answer.ok) {
    throw refusal(answer.status, parsed(came));
  }
  return raw ? came : parsed(came);
}

/** Return what is at a path. Throws ApiError. */
export function get(path, query, signal) {
  return request("GET", path, { query, signal });
}

/** Return what is at a path, null where nothing is. Throws ApiError. */
export async function tryGet(path, query, signal) {
  try {
    return await get(path, query, signal);
  } catch (error) {
    if (error.status === 404) {
      return null;
    }
    throw error;
  }
}

function inHeader(text) {
  const bytes = new TextEncoder().encode(text.replace(/[\r\n\0]+/g, " "));
  return Array.from(bytes, (one) => String.fromCharCode(one)).join("");
}

function parsed(text) {
  try {
    return text === "" ? null : JSON.parse(text);
  } catch {
    return null;
  }
}

function refusal(status, body) {
  const reason = (body && (body.reason || body.error)) || `status ${status}`;
  if (status === 401 && body && body.error === "not_authorized") {
    return new ApiError(401, "Login refused: user or password is wrong, or the token has expired.");
  }
  const texts = {
    401: "Not permitted",
    403: "Not permitted",
    404: "Not there, or not to be seen by you",
    503: "Not available now",
  };
  const begin = texts[status] || (status < 500 ? "Refused" : "Failed");
  return new ApiError(status, `${begin}: ${reason}`, status !== 401 && status !== 403);
}
