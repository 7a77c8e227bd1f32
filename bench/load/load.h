/* Load generator and checker for AMQP brokers: shared declarations.
 *
 * librabbitmq opens connections of AMQP 0.9.1 and does what is rare (login, declare, delete). Publishing,
 * confirms, deliveries and acks are read and written here as frames, many in one system call,
 * so that the generator takes little of the CPU that the measured brokers run on.
 *
 *   main.c     options, the modes, the report (JSON on stdout)
 *   wire.c     one connection: frames in and out
 *   tls.c      TLS for such a connection
 *   amqp10.c   one connection of AMQP 1.0
 *   workers.c  publisher and consumer, a thread and a connection each
 *   check.c    message bodies; which were confirmed and delivered; latency histogram
 *   meter.c    CPU and memory of processes
 */
#ifndef WARREN_LOAD_H
#define WARREN_LOAD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <amqp.h>

#define TARGETS_MAX 64
#define WATCHED_MAX 64
#define WORKERS_MAX 1024
#define SOURCES_MAX 4096
#define BODY_MIN 16 /* below BODY_TIMED without the time of sending */
#define BODY_TIMED 32
#define PRIORITIES_MAX 256
#define ERROR_BYTES 200

/* ------------------------------------------------------------------ options */

typedef struct {
  char *targets, *queue, *queue_type, *user, *password, *vhost, *watch;
  double seconds, warmup_s, rate, kill_at_s, idle_end_s, grace_s;
  long size, count, expect, window, publishers, consumers, prefetch, ack_every, queues, kill_pid,
      priorities;
  bool no_declare, reconnect, delete_after, transient, tls, amqp10, ids;
  struct { char host[128]; int port; } target[TARGETS_MAX];
  int target_count;
  long watched[WATCHED_MAX];
  int watched_count;
} Options;

extern Options options;

/* ------------------------------------------------------------------ check.c */

typedef struct { uint64_t *words; size_t count; } Bits;

bool bits_set(Bits *bits, uint64_t at); /* whether it was clear */

/* The messages of one publisher in one run; the mutex guards both sets. */
typedef struct {
  uint32_t run, publisher;
  int index;
  pthread_mutex_t mutex;
  Bits confirmed, seen;
  uint64_t confirmed_count, seen_count, last; /* last: highest sequence seen, plus 1 */
} Source;

/* sent_ns 0: unknown */
typedef struct { uint32_t run, publisher; uint64_t sequence, sent_ns; } Stamp;

uint64_t now_ns(void);
Source *source_of(uint32_t run, uint32_t publisher); /* NULL: more than SOURCES_MAX */
void body_write(uint8_t *body, size_t size, const Stamp *stamp); /* size >= BODY_MIN */
bool body_read(const uint8_t *body, size_t size, Stamp *stamp);  /* false: damaged or foreign */
uint64_t confirmed_but_not_seen(void);
uint64_t seen_but_not_confirmed(void);
uint64_t missing_below_last(void); /* sequence numbers not seen below the highest seen */
uint64_t seen_distinct(void);

/* Durations in ns, within 1.6 %. */
#define HISTOGRAM_SLOTS (60 * 64)
typedef struct { uint64_t slots[HISTOGRAM_SLOTS], count, max; } Histogram;

void histogram_add(Histogram *histogram, uint64_t ns);
void histogram_merge(Histogram *into, const Histogram *from);
double histogram_ms(const Histogram *histogram, double quantile);

/* ------------------------------------------------------------------- wire.c */

enum { METHOD = 1, HEADER = 2, BODY = 3 };

typedef struct { uint8_t type; uint32_t size; const uint8_t *payload; } Frame;

/* AMQP 1.0: the counts of a session with one link. The ends are what flows permit.
 * sent, delivered: messages out and in, of one transfer each; next_incoming: a transfer-id */
typedef struct { uint32_t sent, link_end, window_end, delivered, next_incoming; } Session;

typedef struct {
  amqp_connection_state_t state;
  bool amqp10;
  Session session;
  int fd;
  size_t frame_max;
  uint8_t *in, *out;
  size_t in_at, in_end, in_room, out_at, out_end, out_room;
  bool dead;
  char error[ERROR_BYTES];
} Wire;

int tls_relay(int net, const char *host); /* a socket with TLS on its other side; -1: failed */
bool wire_fail(Wire *wire, const char *form, ...); /* note the first error; false */
bool wire_open(Wire *wire, int target); /* login, channel 1 open; false: see error */
bool wire_declare(Wire *wire, const char *queue);
bool wire_delete(Wire *wire, const char *queue);
bool wire_confirms(Wire *wire);
bool wire_prefetch(Wire *wire, int count);
void wire_consume(Wire *wire, const char *queue); /* written, not answered yet */
void wire_ack(Wire *wire, uint64_t tag, bool multiple);
void wire_put(Wire *wire, const void *bytes, size_t count);
void wire_frame(Wire *wire, uint8_t type, const void *payload, size_t count);
size_t wire_unsent(const Wire *wire);
void wire_pump(Wire *wire, uint64_t timeout_ns); /* send and receive what can be */
bool wire_next(Wire *wire, Frame *frame);      /* valid until the next wire_pump */
void wire_close(Wire *wire);                   /* in order where it still can be, then freed */
void queue_name(char *name, size_t room, long number);
uint16_t get16(const uint8_t *at);
uint64_t get64(const uint8_t *at);
uint8_t *put16(uint8_t *at, uint16_t value);
uint8_t *put64(uint8_t *at, uint64_t value);
uint8_t *put_text(uint8_t *at, const char *text); /* a short string */

/* ----------------------------------------------------------------- amqp10.c */

enum { OTHER_10, MESSAGE_10, SETTLED_10 };

/* first, last: delivery-ids; body: valid until the next wire_pump */
typedef struct {
  int kind, code;
  uint32_t first, last;
  bool accepted, redelivered;
  const uint8_t *body;
  size_t size;
} Event10;

bool wire10_open(Wire *wire, int target); /* login, a session; false: see error */
bool wire10_attach(Wire *wire, const char *queue, bool receiver);
size_t wire10_prefix(uint8_t *prefix, size_t body_size); /* all of a frame before the body */
void wire10_send(Wire *wire, uint8_t *prefix, size_t prefix_size, const uint8_t *body, size_t size);
bool wire10_may_send(const Wire *wire); /* whether credit and window permit a message */
void wire10_accept(Wire *wire, uint32_t first, uint32_t last);
void wire10_credit(Wire *wire, uint32_t credit);
bool wire10_next(Wire *wire, Event10 *event); /* false: none, or the connection is dead */
void wire10_close(Wire *wire);

/* ---------------------------------------------------------------- workers.c */

typedef struct {
  int id;
  pthread_t thread;
  Histogram latency; /* publisher: publish to confirm; consumer: publish to delivery */
  /* What was counted while `measuring`, and in all. */
  atomic_ulong measured, total;
  uint64_t published, nacked, acked, distinct, duplicates, order_violations, redelivered,
      bad_bodies, errors, reconnects, blocked;
  uint64_t *highest; /* per source and priority, sequence + 1: what this consumer saw last */
  atomic_bool done;
  char error[ERROR_BYTES];
} Worker;

typedef struct {
  atomic_bool go, measuring, stop_publishing, stop_consuming;
  atomic_int ready;
  uint32_t run;
  _Atomic uint64_t last_confirm_ns, last_delivery_ns, confirm_gap_ns, delivery_gap_ns;
} Shared;

extern Shared shared;

void *publisher_run(void *worker);
void *consumer_run(void *worker);
void note_gap(_Atomic uint64_t *last, _Atomic uint64_t *longest, uint64_t now);

/* ------------------------------------------------------------------ meter.c */

typedef struct {
  uint64_t at_ns;
  double own_s, machine_s, process_s[WATCHED_MAX], process_mb[WATCHED_MAX];
} Meter;

void meter_read(Meter *meter);

#endif
