// Bodies of messages: as bytes, as text, as hex, as indented JSON, and as a command.

const COLUMNS = 16;
const SENT = [
  ...["content_type", "content_encoding", "delivery_mode", "correlation_id", "reply_to"],
  ...["message_id", "timestamp", "type", "app_id"],
];

/** Return the bytes of a message's body that are here. */
export function bytesOf(one) {
  if (one.encoding === "base64") {
    return Uint8Array.from(atob(one.body), (letter) => letter.charCodeAt(0));
  }
  return new TextEncoder().encode(one.body);
}

/** Return them as a text, with U+FFFD for what is none. */
export function textOf(one) {
  return one.encoding === "base64" ? new TextDecoder().decode(bytesOf(one)) : one.body;
}

/** Return bytes in rows: offset, hex, letters. */
export function hex(data) {
  const rows = [];
  for (let at = 0; at < data.length; at += COLUMNS) {
    const row = [...data.subarray(at, at + COLUMNS)];
    const codes = row.map((one) => one.toString(16).padStart(2, "0")).join(" ");
    const letters = row.map((one) => (one >= 32 && one < 127 ? String.fromCharCode(one) : "."));
    const offset = at.toString(16).padStart(8, "0");
    rows.push(`${offset}  ${codes.padEnd(3 * COLUMNS - 1)}  ${letters.join("")}`);
  }
  return rows.join("\n");
}

/** Return JSON with indented lines, any other text as it is. */
export function indented(text) {
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  // Of the text, not of the parsed value: numbers beyond 2^53 stay what they are.
  const pieces = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g);
  let depth = 0;
  let made = "";
  const line = () => `\n${"  ".repeat(depth)}`;
  pieces.forEach((piece, at) => {
    const opens = piece === "{" || piece === "[";
    const closes = piece === "}" || piece === "]";
    const empty = closes && ["{", "["].includes(pieces[at - 1]);
    depth += opens ? 1 : closes ? -1 : 0;
    made += closes && !empty ? line() + piece : piece === ":" ? ": " : piece;
    if (piece === "," || (opens && !["}", "]"].includes(pieces[at + 1]))) {
      made += line();
    }
  });
  return made;
}

/** Return the command that publishes a message again, for a shell. */
export function publishLine(one) {
  const data = bytesOf(one);
  const plain = one.encoding === "text" && data.length > 0 && !/[\r\n\0]/.test(one.body);
  const properties = Object.fromEntries(
    Object.entries(one.properties).filter(([key]) => SENT.includes(key)),
  );
  if (Object.keys(one.headers).length) {
    properties.headers = one.headers;
  }
  const words = [
    ...["printf", "'%s\\n'", quoted(plain ? one.body : base64(data))],
    ...["|", "warren", "publish", quoted(one.routing_key)],
    ...(one.exchange ? ["--exchange", quoted(one.exchange)] : []),
    ...(one.priority ? ["--priority", String(one.priority)] : []),
    ...(Object.keys(properties).length ? ["--properties", quoted(JSON.stringify(properties))] : []),
    ...(plain ? [] : ["--base64"]),
  ];
  return words.join(" ");
}

function base64(data) {
  return btoa(Array.from(data, (one) => String.fromCharCode(one)).join(""));
}

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
