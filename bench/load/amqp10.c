/* AMQP 1.0: one connection, one session, one link; frames in and out. */
#include "load.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FRAME_MAX 131072u
#define SESSION_WINDOW (1u << 20) /* transfers that the broker may send ahead */
#define ANSWER_NS (60 * UINT64_C(1000000000))
#define PUMP_NS (50 * UINT64_C(1000000))
#define HEAD 8 /* of a frame */

enum { SASL = 1 };
enum {
  OPEN = 0x10,
  BEGIN = 0x11,
  ATTACH = 0x12,
  FLOW = 0x13,
  TRANSFER = 0x14,
  DISPOSITION = 0x15,
  DETACH = 0x16,
  END = 0x17,
  CLOSE = 0x18,
  SASL_INIT = 0x41,
  SASL_OUTCOME = 0x44,
  ACCEPTED = 0x24,
  HEADER_SECTION = 0x70,
  DATA_SECTION = 0x75
};

/* ------------------------------------------------------------------- values */

static uint32_t get32(const uint8_t *at) { return (uint32_t)get16(at) << 16 | get16(at + 2); }

static uint8_t *put32(uint8_t *at, uint32_t value) {
  return put16(put16(at, (uint16_t)(value >> 16)), (uint16_t)value);
}

static uint8_t *put_uint(uint8_t *at, uint32_t value) {
  *at = 0x70;
  return put32(at + 1, value);
}

static uint8_t *put_string(uint8_t *at, const char *text) {
  *at = 0xa1;
  return put_text(at + 1, text);
}

/* The bytes of the value at `at`; 0: it does not end before `end`. */
static size_t value_size(const uint8_t *at, const uint8_t *end) {
  size_t room = (size_t)(end - at), size;
  if (room == 0) return 0;
  if (at[0] == 0) { /* described: two values */
    size_t first = value_size(at + 1, end);
    if (first == 0) return 0;
    size_t second = value_size(at + 1 + first, end);
    return second == 0 ? 0 : 1 + first + second;
  }
  static const uint8_t fixed[] = {[4] = 0, [5] = 1, [6] = 2, [7] = 4, [8] = 8, [9] = 16};
  int kind = at[0] >> 4;
  if (kind >= 4 && kind <= 9)
    size = 1u + fixed[kind];
  else if (kind == 0xa || kind == 0xc || kind == 0xe)
    size = room < 2 ? room + 1 : 2u + at[1];
  else if (kind == 0xb || kind == 0xd || kind == 0xf)
    size = room < 5 ? room + 1 : (size_t)5 + get32(at + 1);
  else
    return 0;
  return size <= room ? size : 0;
}

/* The fields of a list, one after the other; those that are left out at its end are null. */
typedef struct { const uint8_t *at, *end; } Fields;

static Fields fields_of(const uint8_t *at, const uint8_t *end) {
  size_t size = value_size(at, end);
  if (size >= 3 && at[0] == 0xc0) return (Fields){at + 3, at + size};
  if (size >= 9 && at[0] == 0xd0) return (Fields){at + 9, at + size};
  return (Fields){end, end};
}

static const uint8_t *next_field(Fields *fields) {
  static const uint8_t null[] = {0x40};
  const uint8_t *at = fields->at;
  size_t size = value_size(at, fields->end);
  if (size == 0) return null;
  fields->at += size;
  return at;
}

static void skip_fields(Fields *fields, int count) {
  while (count-- > 0) next_field(fields);
}

static uint32_t uint_or(const uint8_t *at, uint32_t otherwise) {
  switch (at[0]) {
    case 0x41: case 0x43: return at[0] == 0x41;
    case 0x42: return 0;
    case 0x50: case 0x52: case 0x53: case 0x56: return at[1];
    case 0x60: return get16(at + 1);
    case 0x70: return get32(at + 1);
    default: return otherwise;
  }
}

/* --------------------------------------------------------------- frames out */

static void put_performative(Wire *wire, uint8_t type, uint8_t code, int count,
                             const uint8_t *fields, size_t size) {
  uint8_t head[HEAD + 6] = {0};
  uint32_t whole = (uint32_t)(sizeof head + size);
  put32(head, whole);
  head[4] = 2;
  head[5] = type;
  head[9] = 0x53;
  head[10] = code;
  head[11] = 0xc0;
  head[12] = (uint8_t)(size + 1);
  head[13] = (uint8_t)count;
  wire_put(wire, head, sizeof head);
  wire_put(wire, fields, size);
}

void wire10_accept(Wire *wire, uint32_t first, uint32_t last) {
  static const uint8_t accepted[] = {0x41, 0, 0x53, ACCEPTED, 0x45}; /* settled, and its state */
  uint8_t fields[32] = {0x41}, *at = put_uint(put_uint(fields + 1, first), last);
  memcpy(at, accepted, sizeof accepted);
  size_t size = (size_t)(at - fields) + sizeof accepted;
  put_performative(wire, 0, DISPOSITION, 5, fields, size);
}

void wire10_credit(Wire *wire, uint32_t credit) {
  uint8_t fields[64], *at = put_uint(fields, wire->session.next_incoming);
  at = put_uint(put_uint(put_uint(at, SESSION_WINDOW), wire->session.sent), SESSION_WINDOW);
  at = put_uint(put_uint(put_uint(at, 0), wire->session.delivered), credit);
  put_performative(wire, 0, FLOW, 7, fields, (size_t)(at - fields));
}

bool wire10_may_send(const Wire *wire) {
  const Session *session = &wire->session;
  return (int32_t)(session->link_end - session->sent) > 0 &&
         (int32_t)(session->window_end - session->sent) > 0;
}

/* A transfer is the same for every message but for its delivery-id, which is also its tag and, with
   --ids, its message-id. */
enum { ID_AT = HEAD + 8, TAG_AT = ID_AT + 6, MESSAGE_ID_AT = TAG_AT + 4 + 2 + 7 + 11 };

size_t wire10_prefix(uint8_t *prefix, size_t body_size) {
  static const uint8_t transfer[] = {0, 0x53, TRANSFER, 0xc0, 15, 5, 0x43, 0x70, 0, 0, 0, 0,
                                     0xa0, 4, 0, 0, 0, 0, 0x43, 0x42};
  static const uint8_t header[] = {0, 0x53, HEADER_SECTION, 0xc0, 2, 1, 0x41};
  static const uint8_t properties[] = {0, 0x53, 0x73, 0xc0, 10, 1, 0x80, 0, 0, 0, 0, 0, 0, 0, 0};
  uint8_t *at = prefix + HEAD;
  memcpy(at, transfer, sizeof transfer);
  at += sizeof transfer;
  memcpy(at, header, sizeof header);
  at[sizeof header - 1] = options.transient ? 0x42 : 0x41;
  at += sizeof header;
  if (options.ids) at = (uint8_t *)memcpy(at, properties, sizeof properties) + sizeof properties;
  *at++ = 0;
  *at++ = 0x53;
  *at++ = DATA_SECTION;
  if (body_size < 256) {
    *at++ = 0xa0;
    *at++ = (uint8_t)body_size;
  } else {
    *at++ = 0xb0;
    at = put32(at, (uint32_t)body_size);
  }
  size_t size = (size_t)(at - prefix);
  memset(prefix, 0, HEAD);
  put32(prefix, (uint32_t)(size + body_size));
  prefix[4] = 2;
  return size;
}

void wire10_send(Wire *wire, uint8_t *prefix, size_t prefix_size, const uint8_t *body,
                 size_t size) {
  put32(prefix + ID_AT, wire->session.sent);
  put32(prefix + TAG_AT, wire->session.sent);
  if (options.ids) put32(prefix + MESSAGE_ID_AT, wire->session.sent);
  wire->session.sent++;
  wire_put(wire, prefix, prefix_size);
  wire_put(wire, body, size);
}

/* ---------------------------------------------------------------- frames in */

/* Take a frame that is there; false: none, or the connection is dead. */
static bool next_frame(Wire *wire, uint8_t *type, const uint8_t **payload, const uint8_t **end) {
  size_t held = wire->in_end - wire->in_at;
  const uint8_t *at = wire->in + wire->in_at;
  if (wire->dead || held < HEAD) return false;
  uint32_t size = get32(at);
  if (size < HEAD || size > FRAME_MAX || at[4] * 4u > size || at[4] < 2)
    return wire_fail(wire, "a frame of %u bytes", size);
  if (held < size) return false;
  *type = at[5];
  *payload = at + at[4] * 4u;
  *end = at + size;
  wire->in_at += size;
  return true;
}

/* The code of the performative at *at, which then is its list; 0: none. */
static int performative(const uint8_t **at, const uint8_t *end) {
  if (end - *at < 4 || (*at)[0] != 0) return 0;
  int code = (*at)[1] == 0x53 ? (*at)[2] : (*at)[1] == 0x80 && end - *at > 10 ? (*at)[9] : 0;
  *at += 1 + value_size(*at + 1, end);
  return code;
}

static bool ended(Wire *wire, const char *what, const uint8_t *list, const uint8_t *end, int skip) {
  Fields fields = fields_of(list, end);
  skip_fields(&fields, skip);
  const uint8_t *error = next_field(&fields);
  char text[ERROR_BYTES] = "";
  size_t room = sizeof text - 1;
  for (const uint8_t *at = error; error[0] == 0 && at < fields.at && room > 0; at++)
    if (*at >= ' ' && *at < 127) text[sizeof text - 1 - room--] = (char)*at;
  return wire_fail(wire, "the broker ended the %s: %s", what, text);
}

static void on_flow(Session *session, const uint8_t *list, const uint8_t *end) {
  Fields fields = fields_of(list, end);
  uint32_t next_incoming = uint_or(next_field(&fields), 0);
  session->window_end = next_incoming + uint_or(next_field(&fields), 0);
  skip_fields(&fields, 2);
  if (next_field(&fields)[0] == 0x40) return; /* of the session alone */
  uint32_t delivered = uint_or(next_field(&fields), 0);
  session->link_end = delivered + uint_or(next_field(&fields), 0);
}

static void on_disposition(Event10 *event, const uint8_t *list, const uint8_t *end) {
  Fields fields = fields_of(list, end);
  skip_fields(&fields, 1);
  event->kind = SETTLED_10;
  event->first = uint_or(next_field(&fields), 0);
  event->last = uint_or(next_field(&fields), event->first);
  skip_fields(&fields, 1);
  const uint8_t *state = next_field(&fields);
  event->accepted = performative(&state, fields.end) == ACCEPTED;
}

/* Find a message's body, which is one data section in one transfer. */
static bool on_transfer(Wire *wire, Event10 *event, const uint8_t *list, const uint8_t *end) {
  Session *session = &wire->session;
  Fields fields = fields_of(list, end);
  skip_fields(&fields, 1);
  event->kind = MESSAGE_10;
  event->first = event->last = uint_or(next_field(&fields), session->delivered);
  skip_fields(&fields, 3);
  if (uint_or(next_field(&fields), 0)) return wire_fail(wire, "a message of several frames");
  session->next_incoming++;
  session->delivered++;
  event->redelivered = false;
  const uint8_t *at = list + value_size(list, end);
  while (at < end) {
    const uint8_t *value = at;
    int code = performative(&value, end);
    if (code == HEADER_SECTION) {
      Fields header = fields_of(value, end);
      skip_fields(&header, 3);
      bool first = uint_or(next_field(&header), 0);
      event->redelivered = !first || uint_or(next_field(&header), 0) > 0;
    } else if (code == DATA_SECTION) {
      event->body = value + (value[0] == 0xa0 ? 2 : 5);
      event->size = value_size(value, end) - (value[0] == 0xa0 ? 2 : 5);
      return true;
    }
    size_t size = value_size(at, end);
    if (size == 0) break;
    at += size;
  }
  return wire_fail(wire, "a message without a data section");
}

bool wire10_next(Wire *wire, Event10 *event) {
  const uint8_t *at = NULL, *end = NULL;
  uint8_t type;
  while (next_frame(wire, &type, &at, &end)) {
    event->code = performative(&at, end);
    event->kind = OTHER_10;
    switch (event->code) {
      case TRANSFER: return on_transfer(wire, event, at, end);
      case DISPOSITION: on_disposition(event, at, end); return true;
      case FLOW: on_flow(&wire->session, at, end); return true;
      case DETACH: return ended(wire, "link", at, end, 2);
      case END: return ended(wire, "session", at, end, 0);
      case CLOSE: return ended(wire, "connection", at, end, 0);
      case BEGIN: {
        Fields fields = fields_of(at, end);
        skip_fields(&fields, 1);
        wire->session.next_incoming = uint_or(next_field(&fields), 0);
        wire->session.window_end = uint_or(next_field(&fields), 0);
        return true;
      }
      case SASL_OUTCOME: {
        Fields fields = fields_of(at, end);
        if (uint_or(next_field(&fields), 1) != 0) return wire_fail(wire, "login refused");
        return true;
      }
      case 0: continue; /* a heartbeat */
      default: return true;
    }
  }
  return false;
}

/* --------------------------------------------------------------- connection */

static bool await(Wire *wire, int code) {
  uint64_t until = now_ns() + ANSWER_NS;
  Event10 event;
  while (!wire->dead && now_ns() < until) {
    while (wire10_next(wire, &event))
      if (event.code == code) return true;
    wire_pump(wire, PUMP_NS);
  }
  return wire_fail(wire, "no answer");
}

static bool await_header(Wire *wire) {
  uint64_t until = now_ns() + ANSWER_NS;
  while (!wire->dead && now_ns() < until) {
    if (wire->in_end - wire->in_at >= 8) {
      wire->in_at += 8;
      if (memcmp(wire->in + wire->in_at - 8, "AMQP", 4) == 0) return true;
      return wire_fail(wire, "no AMQP");
    }
    wire_pump(wire, PUMP_NS);
  }
  return wire_fail(wire, "no answer");
}

static bool connect_to(Wire *wire, const char *host, int port) {
  char service[16];
  snprintf(service, sizeof service, "%d", port);
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
  if (getaddrinfo(host, service, &hints, &found) != 0) return wire_fail(wire, "%s: unknown", host);
  wire->fd = socket(found->ai_family, found->ai_socktype, 0);
  int failed = wire->fd < 0 || connect(wire->fd, found->ai_addr, found->ai_addrlen) != 0;
  freeaddrinfo(found);
  if (failed) return wire_fail(wire, "%s:%d: %s", host, port, strerror(errno));
  int one = 1;
  setsockopt(wire->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  fcntl(wire->fd, F_SETFL, fcntl(wire->fd, F_GETFL) | O_NONBLOCK);
  return true;
}

static bool log_in(Wire *wire) {
  wire_put(wire, "AMQP\3\1\0\0", 8);
  if (!await_header(wire)) return false;
  uint8_t fields[250] = "\xa3\x05PLAIN\xa0", *at = fields + 9;
  size_t user = strlen(options.user), password = strlen(options.password);
  if (user + password > 200) return wire_fail(wire, "user and password of more than 200 bytes");
  fields[8] = (uint8_t)(user + password + 2);
  *at++ = 0;
  memcpy(at, options.user, user);
  at += user;
  *at++ = 0;
  memcpy(at, options.password, password);
  at += password;
  put_performative(wire, SASL, SASL_INIT, 2, fields, (size_t)(at - fields));
  return await(wire, SASL_OUTCOME);
}

bool wire10_open(Wire *wire, int target) {
  memset(wire, 0, sizeof *wire);
  wire->amqp10 = true;
  wire->in_room = 1 << 20;
  wire->in = malloc(wire->in_room);
  if (wire->in == NULL) abort();
  target %= options.target_count;
  if (!connect_to(wire, options.target[target].host, options.target[target].port)) return false;
  if (!log_in(wire)) return false;
  wire_put(wire, "AMQP\0\1\0\0", 8);
  uint8_t fields[250], *at = put_string(fields, "warren_load");
  *at++ = 0x40; /* hostname: the default vhost */
  at = put_uint(at, FRAME_MAX);
  put_performative(wire, 0, OPEN, 3, fields, (size_t)(at - fields));
  if (!await_header(wire) || !await(wire, OPEN)) return false;
  fields[0] = 0x40;
  at = put_uint(put_uint(put_uint(fields + 1, 0), SESSION_WINDOW), SESSION_WINDOW);
  put_performative(wire, 0, BEGIN, 4, fields, (size_t)(at - fields));
  return await(wire, BEGIN);
}

bool wire10_attach(Wire *wire, const char *queue, bool receiver) {
  char address[300];
  uint8_t fields[400], terminus[320] = {0, 0x53, 0, 0xc0}, *at;
  snprintf(address, sizeof address, "/queues/%.230s", queue);
  uint8_t *end = put_string(terminus + 6, address);
  terminus[2] = receiver ? 0x28 : 0x29;
  terminus[4] = (uint8_t)(end - terminus - 5);
  terminus[5] = 1;
  at = put_string(fields, receiver ? "consumer" : "publisher");
  *at++ = 0x43; /* the handle */
  *at++ = receiver ? 0x41 : 0x42;
  memcpy(at, "\x50\0\x50\0", 4); /* unsettled; first */
  at += 4;
  if (!receiver) at = (uint8_t *)memcpy(at, "\0\x53\x28\x45", 4) + 4;
  at = (uint8_t *)memcpy(at, terminus, (size_t)(end - terminus)) + (end - terminus);
  if (receiver) at = (uint8_t *)memcpy(at, "\0\x53\x29\x45", 4) + 4;
  memcpy(at, "\x40\x40\x43", 3); /* no unsettled map, initial-delivery-count 0 */
  at += 3;
  if (at - fields > 254) return wire_fail(wire, "the queue's name is too long");
  put_performative(wire, 0, ATTACH, 10, fields, (size_t)(at - fields));
  return await(wire, ATTACH);
}

void wire10_close(Wire *wire) {
  if (!wire->dead) {
    put_performative(wire, 0, CLOSE, 0, (const uint8_t *)"", 0);
    uint64_t end = now_ns() + UINT64_C(2000000000);
    Event10 event;
    while (!wire->dead && now_ns() < end) {
      wire_pump(wire, PUMP_NS);
      while (wire10_next(wire, &event)) {
      }
    }
  }
  if (wire->fd > 0) close(wire->fd);
  free(wire->in);
  free(wire->out);
  memset(wire, 0, sizeof *wire);
}
