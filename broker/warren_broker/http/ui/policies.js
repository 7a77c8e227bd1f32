// Policies and operator policies.

import { at, request } from "./api.js";
import { entries } from "./dom.js";
import { action, form, panel } from "./form.js";
import { listing } from "./list.js";
import { inVhost, vhostField } from "./vhosts.js";
import { View } from "./view.js";

const APPLY = ["all", "queues", "classic_queues", "quorum_queues", "exchanges"];
const OPERATOR_APPLY = ["queues", "classic_queues", "quorum_queues"];

/** The lists of policies. */
export function policiesPage() {
  const view = new View("Policies");
  policies(view, "policies", "User policies", APPLY);
  policies(view, "operator-policies", "Operator policies", OPERATOR_APPLY);
  return view;
}

function policies(view, kind, label, apply) {
  const columns = [
    { label: "Vhost", key: "vhost", cell: (one) => one.vhost },
    { label: "Name", key: "name", cell: (one) => one.name },
    { label: "Pattern", key: "pattern", cell: (one) => one.pattern },
    { label: "Apply to", key: "apply-to", cell: (one) => one["apply-to"] },
    { label: "Definition", cell: (one) => entries(one.definition) },
    { label: "Priority", key: "priority", number: true, cell: (one) => one.priority },
    { label: "Actions", cell: (one) => drop(view, kind, one) },
  ];
  listing(view, { name: kind, label, path: () => inVhost(kind), columns });
  const set = form(view, {
    label: `Add or change: ${label.toLowerCase()}`,
    key: kind,
    tag: kind === "policies" ? "policymaker" : "administrator",
    submit: "Set policy",
    fields: [
      vhostField(),
      { name: "name", label: "Name", required: true },
      { name: "pattern", label: "Pattern", required: true, hint: "a regular expression for names" },
      { name: "apply-to", label: "Apply to", type: "select", options: apply },
      { name: "priority", label: "Priority", type: "number", value: 0 },
      {
        name: "definition",
        label: "Definition",
        type: "json",
        hint: 'JSON, such as {"max-length": 1000}',
        required: true,
      },
    ],
    run: async ({ vhost, name, ...body }) => {
      await request("PUT", at(kind, vhost, name), { body });
      return `Policy ${name} is set.`;
    },
  });
  view.add(panel(`Add or change: ${label.toLowerCase()}`, set));
}

function drop(view, kind, one) {
  return action(view, {
    text: "Delete",
    label: `Delete ${one.name} of vhost ${one.vhost}`,
    key: `${kind} ${one.vhost} ${one.name}`,
    tag: kind === "policies" ? "policymaker" : "administrator",
    question: `Delete the policy ${one.name} of vhost ${one.vhost}?`,
    danger: true,
    run: async () => {
      await request("DELETE", at(kind, one.vhost, one.name));
      return `Policy ${one.name} is deleted.`;
    },
  });
}
