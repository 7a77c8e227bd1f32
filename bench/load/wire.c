/* One connection: opened by librabbitmq, then read and written here as frames. */
#define _GNU_SOURCE /* ppoll */
#include "load.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <amqp_tcp_socket.h>

#define FRAME_MAX 131072
#define FRAME_END 0xce
#define IN_ROOM (1 << 20)
#define CONNECT_S 5
#define ANSWER_S 60
#define CLOSE_MS 2000
#define PUMP_NS (50 * UINT64_C(1000000))

uint16_t get16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }

static uint32_t get32(const uint8_t *at) {
  return (uint32_t)get16(at) << 16 | get16(at + 2);
}

uint64_t get64(const uint8_t *at) { return (uint64_t)get32(at) << 32 | get32(at + 4); }

uint8_t *put16(uint8_t *at, uint16_t value) {
  at[0] = (uint8_t)(value >> 8);
  at[1] = (uint8_t)value;
  return at + 2;
}

uint8_t *put64(uint8_t *at, uint64_t value) {
  for (int shift = 48; shift >= 0; shift -= 16) at = put16(at, (uint16_t)(value >> shift));
  return at;
}

uint8_t *put_text(uint8_t *at, const char *text) {
  size_t size = strlen(text);
  if (size > 255) size = 255;
  *at = (uint8_t)size;
  memcpy(at + 1, text, size);
  return at + 1 + size;
}

void queue_name(char *name, size_t room, long number) {
  if (options.queues > 1)
    snprintf(name, room, "%s-%ld", options.queue, number);
  else
    snprintf(name, room, "%s", options.queue);
}

bool wire_fail(Wire *wire, const char *form, ...) {
  va_list arguments;
  va_start(arguments, form);
  if (!wire->dead) vsnprintf(wire->error, sizeof wire->error, form, arguments);
  va_end(arguments);
  wire->dead = true;
  return false;
}

/* ------------------------------------------------------- what librabbitmq does */

static bool answered(Wire *wire, const char *what) {
  amqp_rpc_reply_t reply = amqp_get_rpc_reply(wire->state);
  if (reply.reply_type == AMQP_RESPONSE_NORMAL) return true;
  if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION)
    return wire_fail(wire, "%s: %s", what, amqp_error_string2(reply.library_error));
  if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION) {
    /* connection.close and channel.close begin with the same two fields. */
    amqp_channel_close_t *closed = reply.reply.decoded;
    return wire_fail(wire, "%s: %d %.*s", what, closed->reply_code, (int)closed->reply_text.len,
                (char *)closed->reply_text.bytes);
  }
  return wire_fail(wire, "%s: no answer", what);
}

bool wire_open(Wire *wire, int target) {
  memset(wire, 0, sizeof *wire);
  wire->in_room = IN_ROOM;
  wire->in = malloc(wire->in_room);
  wire->state = amqp_new_connection();
  if (wire->in == NULL || wire->state == NULL) abort();
  const char *host = options.target[target % options.target_count].host;
  int port = options.target[target % options.target_count].port;
  amqp_socket_t *socket = amqp_tcp_socket_new(wire->state);
  struct timeval connect = {.tv_sec = CONNECT_S}, answer = {.tv_sec = ANSWER_S};
  amqp_set_handshake_timeout(wire->state, &connect);
  amqp_set_rpc_timeout(wire->state, &answer);
  int status = amqp_socket_open_noblock(socket, host, port, &connect);
  if (status != AMQP_STATUS_OK)
    return wire_fail(wire, "%s:%d: %s", host, port, amqp_error_string2(status));
  if (options.tls) {
    int local = tls_relay(amqp_socket_get_sockfd(socket), host);
    if (local < 0) return wire_fail(wire, "%s:%d: no TLS", host, port);
    amqp_tcp_socket_set_sockfd(socket, local);
  }
  amqp_rpc_reply_t reply = amqp_login(wire->state, options.vhost, 1, FRAME_MAX, 0,
                                      AMQP_SASL_METHOD_PLAIN, options.user, options.password);
  if (reply.reply_type != AMQP_RESPONSE_NORMAL)
    return wire_fail(wire, "%s:%d: login refused or not answered", host, port);
  amqp_channel_open(wire->state, 1);
  if (!answered(wire, "channel.open")) return false;
  wire->fd = amqp_get_sockfd(wire->state);
  wire->frame_max = (size_t)amqp_get_frame_max(wire->state);
  if (wire->frame_max == 0 || wire->frame_max > FRAME_MAX) wire->frame_max = FRAME_MAX;
  fcntl(wire->fd, F_SETFL, fcntl(wire->fd, F_GETFL) | O_NONBLOCK);
  return true;
}

bool wire_declare(Wire *wire, const char *queue) {
  amqp_table_entry_t entry = {.key = amqp_cstring_bytes("x-queue-type")};
  entry.value.kind = AMQP_FIELD_KIND_UTF8;
  entry.value.value.bytes = amqp_cstring_bytes(options.queue_type);
  amqp_table_t arguments = {.num_entries = 1, .entries = &entry};
  amqp_queue_declare(wire->state, 1, amqp_cstring_bytes(queue), false, true, false, false,
                     arguments);
  return answered(wire, "queue.declare");
}

bool wire_delete(Wire *wire, const char *queue) {
  amqp_queue_delete(wire->state, 1, amqp_cstring_bytes(queue), false, false);
  return answered(wire, "queue.delete");
}

bool wire_confirms(Wire *wire) {
  amqp_confirm_select(wire->state, 1);
  return answered(wire, "confirm.select");
}

bool wire_prefetch(Wire *wire, int count) {
  amqp_basic_qos(wire->state, 1, 0, (uint16_t)count, false);
  return answered(wire, "basic.qos");
}

/* ---------------------------------------------------------------- frames out */

size_t wire_unsent(const Wire *wire) { return wire->out_end - wire->out_at; }

void wire_put(Wire *wire, const void *bytes, size_t count) {
  if (wire->out_at == wire->out_end) wire->out_at = wire->out_end = 0;
  if (wire->out_end + count > wire->out_room) {
    wire->out_room = (wire->out_end + count) * 2;
    wire->out = realloc(wire->out, wire->out_room);
    if (wire->out == NULL) abort();
  }
  memcpy(wire->out + wire->out_end, bytes, count);
  wire->out_end += count;
}

static void put_frame(Wire *wire, uint8_t type, uint16_t channel, const void *payload,
                      size_t count) {
  uint8_t head[7] = {type}, end = FRAME_END;
  put16(put16(put16(head + 1, channel), (uint16_t)(count >> 16)), (uint16_t)count);
  wire_put(wire, head, sizeof head);
  wire_put(wire, payload, count);
  wire_put(wire, &end, 1);
}

void wire_frame(Wire *wire, uint8_t type, const void *payload, size_t count) {
  put_frame(wire, type, 1, payload, count);
}

void wire_consume(Wire *wire, const char *queue) {
  uint8_t payload[600], *at = put16(put16(put16(payload, 60), 20), 0);
  at = put_text(put_text(at, queue), "");
  *at++ = 0;                  /* no-local, no-ack, exclusive, no-wait */
  at = put16(put16(at, 0), 0); /* no arguments */
  wire_frame(wire, METHOD, payload, (size_t)(at - payload));
}

void wire_ack(Wire *wire, uint64_t tag, bool multiple) {
  uint8_t payload[13];
  put64(put16(put16(payload, 60), 80), tag)[0] = multiple;
  wire_frame(wire, METHOD, payload, sizeof payload);
}

/* ----------------------------------------------------------------- frames in */

void wire_pump(Wire *wire, uint64_t timeout_ns) {
  if (wire->dead) return;
  while (wire_unsent(wire) > 0) {
    ssize_t sent = send(wire->fd, wire->out + wire->out_at, wire_unsent(wire), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) break;
    if (sent < 0) {
      wire_fail(wire, "send: %s", strerror(errno));
      return;
    }
    wire->out_at += (size_t)sent;
  }
  struct pollfd waits = {.fd = wire->fd, .events = POLLIN};
  if (wire_unsent(wire) > 0) waits.events |= POLLOUT;
  struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / UINT64_C(1000000000)),
                             .tv_nsec = (long)(timeout_ns % UINT64_C(1000000000))};
  if (ppoll(&waits, 1, &timeout, NULL) <= 0 || !(waits.revents & ~POLLOUT)) return;
  if (wire->in_at > 0) {
    memmove(wire->in, wire->in + wire->in_at, wire->in_end - wire->in_at);
    wire->in_end -= wire->in_at;
    wire->in_at = 0;
  }
  ssize_t got = recv(wire->fd, wire->in + wire->in_end, wire->in_room - wire->in_end, 0);
  if (got == 0) wire_fail(wire, "the broker ended the connection");
  if (got < 0 && errno != EAGAIN && errno != EINTR) wire_fail(wire, "recv: %s", strerror(errno));
  if (got > 0) wire->in_end += (size_t)got;
}

/* Whether the frame ends the connection: connection.close or channel.close. */
static bool closes(Wire *wire, const Frame *frame) {
  if (frame->type != METHOD || frame->size < 7) return false;
  uint16_t class_id = get16(frame->payload), method = get16(frame->payload + 2);
  if (!(class_id == 10 && method == 50) && !(class_id == 20 && method == 40)) return false;
  wire_fail(wire, "%s.close: %d %.*s", class_id == 10 ? "connection" : "channel",
       get16(frame->payload + 4), frame->payload[6], frame->payload + 7);
  return true;
}

bool wire_next(Wire *wire, Frame *frame) {
  size_t held = wire->in_end - wire->in_at;
  const uint8_t *at = wire->in + wire->in_at;
  if (held < 8) return false;
  frame->type = at[0];
  frame->size = get32(at + 3);
  if (frame->size > FRAME_MAX) return wire_fail(wire, "a frame of %u bytes", frame->size);
  if (held < frame->size + 8u) return false;
  if (at[frame->size + 7] != FRAME_END) return wire_fail(wire, "a frame without its end");
  frame->payload = at + 7;
  wire->in_at += frame->size + 8u;
  return !closes(wire, frame);
}

void wire_close(Wire *wire) {
  if (wire->amqp10) {
    wire10_close(wire);
    return;
  }
  if (wire->fd > 0 && !wire->dead) {
    uint8_t payload[11] = {0, 10, 0, 50, 0, 200};
    put_frame(wire, METHOD, 0, payload, sizeof payload);
    uint64_t end = now_ns() + CLOSE_MS * UINT64_C(1000000);
    bool closed = false;
    while (!closed && !wire->dead && now_ns() < end) {
      Frame frame;
      wire_pump(wire, PUMP_NS);
      while (!closed && wire_next(wire, &frame))
        closed = frame.type == METHOD && get16(frame.payload) == 10 &&
                 get16(frame.payload + 2) == 51;
    }
  }
  amqp_destroy_connection(wire->state);
  free(wire->in);
  free(wire->out);
  memset(wire, 0, sizeof *wire);
}
