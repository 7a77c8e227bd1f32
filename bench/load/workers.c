/* Publisher and consumer: a thread and a connection each. */
#include "load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define UNSENT_MAX (256 * 1024)
#define RECONNECT_US 20000
#define TURN_NS (20 * UINT64_C(1000000))

Shared shared;

void note_gap(_Atomic uint64_t *last, _Atomic uint64_t *longest, uint64_t now) {
  uint64_t before = atomic_exchange(last, now);
  if (before == 0 || now <= before || !shared.measuring) return;
  uint64_t known = *longest;
  while (now - before > known && !atomic_compare_exchange_weak(longest, &known, now - before)) {
  }
}

static void await_go(void) {
  atomic_fetch_add(&shared.ready, 1);
  while (!shared.go) usleep(500);
}

/* Keep the reason; whether to connect again. */
static bool again(Worker *worker, Wire *wire, const atomic_bool *stop) {
  snprintf(worker->error, sizeof worker->error, "%s", wire->error);
  wire_close(wire);
  if (!options.reconnect || *stop) {
    worker->errors++;
    return false;
  }
  usleep(RECONNECT_US);
  worker->reconnects++;
  return true;
}

/* Open a connection to the next target, and again for grace_s where that is wanted. */
static bool open_any(Worker *worker, Wire *wire, int *target, const atomic_bool *stop) {
  uint64_t end = now_ns() + (uint64_t)(options.grace_s * 1e9);
  bool (*open)(Wire *, int) = options.amqp10 ? wire10_open : wire_open;
  while (!open(wire, (*target)++))
    if (!again(worker, wire, stop) || now_ns() > end) return false;
  return true;
}

/* ---------------------------------------------------------------- publisher */

typedef struct { uint64_t sequence, sent_ns; bool settled; } InFlight;

typedef struct {
  Worker *worker;
  Wire wire;
  Source *source;
  InFlight *ring; /* by delivery tag */
  uint64_t ring_mask, tag, oldest, in_flight; /* tag: the next; oldest: the first not settled */
  uint64_t sequence, limit;
  uint8_t prefix[600], *body;
  size_t prefix_size;
} Publisher;

/* The frames before the body are the same for every message but for the priority, if any. */
static void make_prefix(Publisher *self) {
  if (options.amqp10) {
    self->prefix_size = wire10_prefix(self->prefix, (size_t)options.size);
    return;
  }
  char queue[256];
  uint8_t payload[600], *at;
  queue_name(queue, sizeof queue, self->worker->id % options.queues);
  at = put_text(put_text(put16(put16(put16(payload, 60), 40), 0), ""), queue);
  *at++ = 0; /* neither mandatory nor immediate */
  Wire frames = {0};
  wire_frame(&frames, METHOD, payload, (size_t)(at - payload));
  uint16_t properties = options.priorities > 0 ? 0x1800 : 0x1000;
  at = put16(put64(put16(put16(payload, 60), 0), (uint64_t)options.size), properties);
  *at++ = options.transient ? 1 : 2; /* delivery-mode */
  if (options.priorities > 0) *at++ = 0;
  wire_frame(&frames, HEADER, payload, (size_t)(at - payload));
  self->prefix_size = frames.out_end;
  memcpy(self->prefix, frames.out, frames.out_end);
  free(frames.out);
}

static long priority_of(const Stamp *stamp) {
  return options.priorities > 0 ? (long)(stamp->sequence % (uint64_t)options.priorities) : 0;
}

static void publish_one(Publisher *self, uint64_t stamp_ns) {
  Stamp stamp = {shared.run, (uint32_t)self->worker->id, self->sequence++, stamp_ns};
  InFlight *slot = &self->ring[self->tag++ & self->ring_mask];
  *slot = (InFlight){stamp.sequence, stamp_ns, false};
  size_t size = (size_t)options.size, piece = self->wire.frame_max - 8;
  body_write(self->body, size, &stamp);
  self->in_flight++;
  self->worker->published++;
  if (options.amqp10) {
    wire10_send(&self->wire, self->prefix, self->prefix_size, self->body, size);
    return;
  }
  if (options.priorities > 0) /* the last byte before the frame's end */
    self->prefix[self->prefix_size - 2] = (uint8_t)priority_of(&stamp);
  wire_put(&self->wire, self->prefix, self->prefix_size);
  for (size_t at = 0; at < size; at += piece)
    wire_frame(&self->wire, BODY, self->body + at, size - at < piece ? size - at : piece);
}

static void settle(Publisher *self, uint64_t tag, bool confirmed, uint64_t now) {
  InFlight *slot = &self->ring[tag & self->ring_mask];
  if (slot->settled) return;
  slot->settled = true;
  self->in_flight--;
  if (!confirmed) {
    self->worker->nacked++;
    return;
  }
  bits_set(&self->source->confirmed, slot->sequence);
  self->worker->total++;
  if (shared.measuring) {
    self->worker->measured++;
    histogram_add(&self->worker->latency, now - slot->sent_ns);
  }
}

static void settle_range(Publisher *self, uint64_t first, uint64_t last, bool confirmed) {
  uint64_t now = now_ns();
  if (last >= self->tag || last < self->oldest) return; /* not ours, or settled */
  if (first < self->oldest) first = self->oldest;
  pthread_mutex_lock(&self->source->mutex);
  for (uint64_t each = first; each <= last; each++) settle(self, each, confirmed, now);
  pthread_mutex_unlock(&self->source->mutex);
  while (self->oldest < self->tag && self->ring[self->oldest & self->ring_mask].settled)
    self->oldest++;
  if (confirmed) note_gap(&shared.last_confirm_ns, &shared.confirm_gap_ns, now);
}

static void on_confirm(Publisher *self, const Frame *frame, bool confirmed) {
  uint64_t tag = get64(frame->payload + 4);
  settle_range(self, frame->payload[12] & 1 ? self->oldest : tag, tag, confirmed);
}

/* Delivery-ids count from 0, tags from 1. */
static void read_dispositions(Publisher *self) {
  Event10 event;
  while (wire10_next(&self->wire, &event))
    if (event.kind == SETTLED_10)
      settle_range(self, (uint64_t)event.first + 1, (uint64_t)event.last + 1, event.accepted);
}

static void read_confirms(Publisher *self) {
  if (options.amqp10) {
    read_dispositions(self);
    return;
  }
  Frame frame;
  while (!self->wire.dead && wire_next(&self->wire, &frame)) {
    if (frame.type != METHOD || frame.size < 4) continue;
    uint16_t class_id = get16(frame.payload), method = get16(frame.payload + 2);
    if (class_id == 60 && (method == 80 || method == 120) && frame.size >= 13)
      on_confirm(self, &frame, method == 80);
    else if (class_id == 10 && method == 60)
      self->worker->blocked++;
  }
}

/* Publish what the window, the rate and the socket allow; ns until more is due. To the nanosecond: a
   wait that is rounded down to 0 would poll without a pause, and take a core from the brokers. */
static uint64_t publish_some(Publisher *self, uint64_t began) {
  double each_ns = options.rate > 0 ? 1e9 * (double)options.publishers / options.rate : 0;
  while (self->in_flight < (uint64_t)options.window && self->sequence < self->limit &&
         self->tag - self->oldest <= self->ring_mask && wire_unsent(&self->wire) < UNSENT_MAX &&
         (!options.amqp10 || wire10_may_send(&self->wire))) {
    uint64_t now = now_ns();
    if (each_ns > 0) {
      uint64_t due = began + (uint64_t)((double)self->sequence * each_ns);
      if (due > now) return due - now < TURN_NS ? due - now : TURN_NS;
      now = due; /* open loop: a late send counts as waiting */
    }
    publish_one(self, now);
  }
  return TURN_NS;
}

/* One connection's life; true: everything was published and settled, or it is time to end. */
static bool publish_until_done(Publisher *self, uint64_t began) {
  uint64_t end = 0;
  self->tag = self->oldest = 1;
  self->in_flight = 0;
  for (;;) {
    bool stop = shared.stop_publishing || self->sequence >= self->limit;
    if (stop && self->in_flight == 0) return true;
    if (stop && end == 0) end = now_ns() + (uint64_t)(options.grace_s * 1e9);
    if (stop && now_ns() > end) return true;
    uint64_t wait = stop ? TURN_NS : publish_some(self, began);
    wire_pump(&self->wire, wait);
    read_confirms(self);
    if (self->wire.dead) return false;
  }
}

static bool may_publish(Publisher *self) {
  if (!options.amqp10) return wire_confirms(&self->wire);
  char queue[256];
  queue_name(queue, sizeof queue, self->worker->id % options.queues);
  return wire10_attach(&self->wire, queue, false);
}

void *publisher_run(void *worker) {
  prctl(PR_SET_TIMERSLACK, 1UL); /* ns; 50,000 unless asked for, which would count as latency */
  Publisher self = {.worker = worker};
  uint64_t room = 1024;
  while (room < (uint64_t)options.window * 4) room *= 2;
  self.ring = calloc(room, sizeof *self.ring);
  self.body = malloc((size_t)options.size);
  self.source = source_of(shared.run, (uint32_t)self.worker->id);
  if (self.ring == NULL || self.body == NULL || self.source == NULL) abort();
  self.ring_mask = room - 1;
  self.limit = UINT64_MAX;
  if (options.count > 0)
    self.limit = (uint64_t)(options.count / options.publishers +
                            (self.worker->id < options.count % options.publishers));
  make_prefix(&self);
  int target = self.worker->id;
  bool open = open_any(self.worker, &self.wire, &target, &shared.stop_publishing);
  await_go();
  uint64_t began = now_ns();
  while (open) {
    if (may_publish(&self) && publish_until_done(&self, began)) {
      wire_close(&self.wire);
      break;
    }
    /* What was not confirmed is not sent again: a second delivery is the broker's doing. */
    open = again(self.worker, &self.wire, &shared.stop_publishing) &&
           open_any(self.worker, &self.wire, &target, &shared.stop_publishing);
  }
  free(self.ring);
  free(self.body);
  self.worker->done = true;
  return NULL;
}

/* ----------------------------------------------------------------- consumer */

typedef struct {
  Worker *worker;
  Wire wire;
  Source *source; /* of the last message: usually also of the next */
  uint64_t tag, acked, expected; /* expected: bytes of the body under way */
  uint64_t credited;             /* AMQP 1.0: the tag with which credit was given last */
  uint32_t delivery_id;
  bool redelivered;
  uint8_t *body;
  size_t body_size, body_room;
} Consumer;

static void check(Consumer *self, const uint8_t *body, size_t size, uint64_t now) {
  Worker *worker = self->worker;
  Stamp stamp;
  if (!body_read(body, size, &stamp)) {
    worker->bad_bodies++;
    return;
  }
  Source *source = self->source;
  if (source == NULL || source->run != stamp.run || source->publisher != stamp.publisher)
    source = self->source = source_of(stamp.run, stamp.publisher);
  if (source == NULL) {
    worker->bad_bodies++;
    return;
  }
  pthread_mutex_lock(&source->mutex);
  bool first = bits_set(&source->seen, stamp.sequence);
  source->seen_count += first;
  if (stamp.sequence + 1 > source->last) source->last = stamp.sequence + 1;
  pthread_mutex_unlock(&source->mutex);
  uint64_t *highest = &worker->highest[source->index * PRIORITIES_MAX + priority_of(&stamp)];
  if (!first)
    worker->duplicates++;
  else if (stamp.sequence + 1 < *highest && !self->redelivered)
    worker->order_violations++;
  if (stamp.sequence + 1 > *highest) *highest = stamp.sequence + 1;
  worker->distinct += first;
  if (shared.measuring && first) {
    worker->measured++;
    if (stamp.sent_ns > 0 && now > stamp.sent_ns) histogram_add(&worker->latency, now - stamp.sent_ns);
  }
}

/* Acknowledge all up to the last message. */
static void acknowledge(Consumer *self) {
  uint32_t count = (uint32_t)(self->tag - self->acked);
  if (options.amqp10)
    wire10_accept(&self->wire, self->delivery_id - count + 1, self->delivery_id);
  else
    wire_ack(&self->wire, self->tag, options.ack_every > 1);
  self->worker->acked += count;
  self->acked = self->tag;
}

static void on_message(Consumer *self, const uint8_t *body, size_t size) {
  uint64_t now = now_ns();
  check(self, body, size, now);
  self->worker->total++;
  self->worker->redelivered += self->redelivered;
  note_gap(&shared.last_delivery_ns, &shared.delivery_gap_ns, now);
  if (self->tag - self->acked >= (uint64_t)options.ack_every) acknowledge(self);
}

static void ack_rest(Consumer *self) {
  if (self->tag > self->acked) acknowledge(self);
}

static void read_transfers(Consumer *self) {
  Event10 event;
  while (wire10_next(&self->wire, &event)) {
    if (event.kind != MESSAGE_10) continue;
    self->tag++;
    self->delivery_id = event.first;
    self->redelivered = event.redelivered;
    on_message(self, event.body, event.size);
    if ((self->tag - self->credited) * 10 < (uint64_t)options.prefetch) continue;
    self->credited = self->tag;
    wire10_credit(&self->wire, (uint32_t)options.prefetch);
  }
}

static void on_body(Consumer *self, const Frame *frame) {
  if (self->body_size == 0 && frame->size == self->expected) {
    on_message(self, frame->payload, frame->size);
    return;
  }
  if (self->body_size + frame->size > self->body_room) {
    self->body_room = (self->body_size + frame->size) * 2;
    self->body = realloc(self->body, self->body_room);
    if (self->body == NULL) abort();
  }
  memcpy(self->body + self->body_size, frame->payload, frame->size);
  self->body_size += frame->size;
  if (self->body_size < self->expected) return;
  on_message(self, self->body, self->body_size);
  self->body_size = 0;
}

static void read_deliveries(Consumer *self) {
  if (options.amqp10) {
    read_transfers(self);
    return;
  }
  Frame frame;
  while (!self->wire.dead && wire_next(&self->wire, &frame)) {
    const uint8_t *payload = frame.payload;
    if (frame.type == METHOD && frame.size >= 14 && get16(payload) == 60 &&
        get16(payload + 2) == 60) {
      const uint8_t *after = payload + 5 + payload[4]; /* the consumer's tag */
      self->tag = get64(after);
      self->redelivered = after[8] & 1;
    } else if (frame.type == METHOD && frame.size >= 4 && get16(payload) == 60 &&
               get16(payload + 2) == 30) {
      self->wire.dead = true;
      snprintf(self->wire.error, sizeof self->wire.error, "the broker cancelled the consumer");
    } else if (frame.type == HEADER && frame.size >= 12) {
      self->expected = get64(payload + 4);
      self->body_size = 0;
      if (self->expected == 0) on_message(self, payload, 0);
    } else if (frame.type == BODY) {
      on_body(self, &frame);
    }
  }
}

/* One connection's life; true: it is time to end. */
static bool consume_until_done(Consumer *self) {
  char queue[256];
  queue_name(queue, sizeof queue, self->worker->id % options.queues);
  self->tag = self->acked = self->credited = 0;
  self->body_size = 0;
  if (!options.amqp10) {
    wire_consume(&self->wire, queue);
  } else {
    if (!wire10_attach(&self->wire, queue, true)) return false;
    wire10_credit(&self->wire, (uint32_t)options.prefetch);
  }
  while (!shared.stop_consuming) {
    uint64_t before = self->worker->total;
    wire_pump(&self->wire, TURN_NS);
    read_deliveries(self);
    if (self->wire.dead) return false;
    if (self->worker->total == before) ack_rest(self);
  }
  ack_rest(self);
  return true;
}

void *consumer_run(void *worker) {
  Consumer self = {.worker = worker};
  int target = self.worker->id;
  self.worker->highest = calloc(SOURCES_MAX * PRIORITIES_MAX, sizeof(uint64_t));
  if (self.worker->highest == NULL) abort();
  bool open = open_any(self.worker, &self.wire, &target, &shared.stop_consuming);
  await_go();
  while (open) {
    bool limited = options.amqp10 || wire_prefetch(&self.wire, (int)options.prefetch);
    if (limited && consume_until_done(&self)) {
      wire_close(&self.wire);
      break;
    }
    open = again(self.worker, &self.wire, &shared.stop_consuming) &&
           open_any(self.worker, &self.wire, &target, &shared.stop_consuming);
  }
  free(self.body);
  free(self.worker->highest);
  self.worker->done = true;
  return NULL;
}
