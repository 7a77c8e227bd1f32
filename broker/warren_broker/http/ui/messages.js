// Forms that publish a message, and that take messages from a queue.

import { at, exchangeName, request } from "./api.js";
import { entries, facts, h, replace } from "./dom.js";
import { form } from "./form.js";

const SHOWN_BYTES = 50000;
const MODES = [
  ["ack_requeue_true", "Look: messages go back to the queue"],
  ["ack_requeue_false", "Take: messages are acknowledged and gone"],
  ["reject_requeue_true", "Reject, back to the queue"],
  ["reject_requeue_false", "Reject: messages are dead-lettered or dropped"],
];

/** Return a form that publishes to an exchange, or through the default one to a queue. */
export function publishForm(view, vhost, { exchange, queue }) {
  const keys = queue === undefined ? [{ name: "routing_key", label: "Routing key" }] : [];
  return form(view, {
    label: "Publish a message",
    key: "publish",
    submit: "Publish",
    keep: true,
    fields: [
      ...keys,
      { name: "persistent", label: "Persistent", type: "checkbox", value: true },
      { name: "headers", label: "Headers", type: "json", hint: "JSON" },
      {
        name: "properties",
        label: "Properties",
        type: "json",
        hint: 'JSON, such as {"content_type": "text/plain"}',
      },
      { name: "payload", label: "Payload", type: "area", rows: 5 },
      {
        name: "payload_encoding",
        label: "Payload is",
        type: "select",
        options: [
          ["string", "text"],
          ["base64", "Base64"],
        ],
      },
    ],
    run: async (given) => {
      const properties = { ...given.properties, delivery_mode: given.persistent ? 2 : 1 };
      if (Object.keys(given.headers).length) {
        properties.headers = given.headers;
      }
      const { payload, payload_encoding } = given;
      const routing_key = queue ?? given.routing_key;
      const body = { properties, routing_key, payload, payload_encoding };
      const source = exchangeName(exchange ?? "");
      const found = await request("POST", at("exchanges", vhost, source, "publish"), { body });
      if (!found.routed) {
        throw new Error("Published, but not routed: no queue is bound for it.");
      }
      return "The message is published.";
    },
  });
}

/** Return a form that takes messages, and the place where they are shown. */
export function getForm(view, vhost, queue) {
  const place = h("div", { class: "messages", "aria-live": "polite" });
  const made = form(view, {
    label: "Get messages",
    key: "get",
    submit: "Get messages",
    keep: true,
    fields: [
      { name: "ackmode", label: "And then", type: "select", options: MODES },
      {
        name: "encoding",
        label: "Payloads as",
        type: "select",
        options: [
          ["auto", "text, or Base64 if not UTF-8"],
          ["base64", "Base64"],
        ],
      },
      { name: "count", label: "Messages", type: "number", value: 1, min: 1, max: 1000 },
    ],
    run: async ({ ackmode, encoding, count }) => {
      const body = { ackmode, encoding, count, truncate: SHOWN_BYTES };
      const found = await request("POST", at("queues", vhost, queue, "get"), { body });
      replace(place, found.map(message));
      return found.length ? `${found.length} messages.` : "The queue has no message to get.";
    },
  });
  return [made, place];
}

function message(one, at) {
  const cut = one.payload_bytes > SHOWN_BYTES ? `, the first ${SHOWN_BYTES} shown` : "";
  const { headers, ...properties } = one.properties;
  return h(
    "article",
    { class: "message", "aria-label": `Message ${at + 1}` },
    facts([
      ["Message", at + 1],
      ["Exchange", one.exchange || "(default exchange)"],
      ["Routing key", one.routing_key],
      ["Redelivered", one.redelivered ? "yes" : "no"],
      ["Properties", entries(properties)],
      ["Headers", entries(headers)],
      ["Payload", `${one.payload_bytes} bytes, ${one.payload_encoding}${cut}`],
    ]),
    h("pre", { tabindex: "0" }, one.payload),
  );
}
