/* Options, modes and the report: a JSON object on stdout. */
#include "load.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WATCH_US 2000
#define QUIET_NS 300000000u /* after the last message is in: time for one more that is too many */

static const char HELP[] =
    "warren_load MODE --targets host:port,... --queue NAME [option value] ...\n"
    "\n"
    "modes   pubsub   publish and consume at once for --time seconds after --warmup\n"
    "        fill     publish --count messages\n"
    "        drain    consume until --expect messages were seen, or none for --idle-end seconds\n"
    "        declare  declare --queues queues, one after the other\n"
    "        delete   delete them\n"
    "\n"
    "options with a value; queues are NAME, or NAME-0, NAME-1 ... with --queues above 1\n"
    "  --queues N --queue-type quorum|classic --user --password --vhost\n"
    "  --pubs N --window N (unconfirmed per publisher) --size BYTES --count N (all publishers)\n"
    "  --priorities N (0 to N-1 in turn; each keeps its order)\n"
    "  --rate R (messages/s of all publishers, open loop: latency counts from when it was due)\n"
    "  --cons N --prefetch N --ack-every N --expect N --idle-end S\n"
    "  --time S --warmup S --grace S (for what is unconfirmed or undelivered at the end)\n"
    "  --watch PID,... (CPU and memory) --kill-pid PID --kill-at S (SIGKILL, S after the start)\n"
    "options without: --no-declare --delete-after --reconnect --transient --tls\n"
    "  --amqp10 (publish and consume over AMQP 1.0: --prefetch is the credit, renewed after each tenth\n"
    "  of it; --ack-every messages are settled by one disposition; --size is at most 100000)\n"
    "  --ids (over AMQP 1.0: a message-id of its own for each message)\n";

Options options = {
    .queue_type = "quorum",
    .user = "guest",
    .password = "guest",
    .vhost = "/",
    .seconds = 10,
    .warmup_s = 3,
    .idle_end_s = 5,
    .grace_s = 30,
    .size = 100,
    .window = 1000,
    .publishers = 1,
    .consumers = 1,
    .prefetch = 1000,
    .ack_every = 100,
    .queues = 1,
};

/* ------------------------------------------------------------------ options */

static void refuse(const char *what, const char *value) {
  fprintf(stderr, "%s: %s\n%s", what, value, HELP);
  exit(2);
}

typedef struct { const char *name; char **text; long *number; double *real; bool *flag; } Option;

static const Option known[] = {
    {"targets", .text = &options.targets},
    {"queue", .text = &options.queue},
    {"queue-type", .text = &options.queue_type},
    {"user", .text = &options.user},
    {"password", .text = &options.password},
    {"vhost", .text = &options.vhost},
    {"watch", .text = &options.watch},
    {"time", .real = &options.seconds},
    {"warmup", .real = &options.warmup_s},
    {"rate", .real = &options.rate},
    {"kill-at", .real = &options.kill_at_s},
    {"idle-end", .real = &options.idle_end_s},
    {"grace", .real = &options.grace_s},
    {"size", .number = &options.size},
    {"count", .number = &options.count},
    {"expect", .number = &options.expect},
    {"window", .number = &options.window},
    {"pubs", .number = &options.publishers},
    {"cons", .number = &options.consumers},
    {"prefetch", .number = &options.prefetch},
    {"ack-every", .number = &options.ack_every},
    {"queues", .number = &options.queues},
    {"kill-pid", .number = &options.kill_pid},
    {"priorities", .number = &options.priorities},
    {"no-declare", .flag = &options.no_declare},
    {"reconnect", .flag = &options.reconnect},
    {"delete-after", .flag = &options.delete_after},
    {"transient", .flag = &options.transient},
    {"tls", .flag = &options.tls},
    {"amqp10", .flag = &options.amqp10},
    {"ids", .flag = &options.ids},
};
#define KNOWN (sizeof known / sizeof *known)

static void take(const Option *option, char *value) {
  char *end = "";
  if (option->flag != NULL) *option->flag = true;
  if (option->text != NULL) *option->text = value;
  if (option->number != NULL) *option->number = strtol(value, &end, 10);
  if (option->real != NULL) *option->real = strtod(value, &end);
  if (*end != 0) refuse(option->name, value);
}

static void bound(const char *name, long value, long least, long most) {
  if (value >= least && value <= most) return;
  fprintf(stderr, "--%s %ld: from %ld to %ld\n", name, value, least, most);
  exit(2);
}

static void parse(int count, char **arguments) {
  struct option table[KNOWN + 1] = {0};
  for (size_t i = 0; i < KNOWN; i++)
    table[i] = (struct option){known[i].name, known[i].flag == NULL, NULL, (int)i};
  optind = 2;
  for (int which; (which = getopt_long(count, arguments, "", table, NULL)) != -1;) {
    if (which == '?') exit(2);
    take(&known[which], optarg);
  }
  if (optind < count) refuse("unknown argument", arguments[optind]);
  if (options.targets == NULL || options.queue == NULL) refuse("needed", "--targets and --queue");
  for (char *at = strtok(options.targets, ","); at != NULL; at = strtok(NULL, ",")) {
    char *colon = strrchr(at, ':');
    if (colon == NULL || options.target_count == TARGETS_MAX) refuse("--targets", at);
    snprintf(options.target[options.target_count].host, sizeof options.target[0].host, "%.*s",
             (int)(colon - at), at);
    options.target[options.target_count++].port = atoi(colon + 1);
  }
  for (char *at = options.watch ? strtok(options.watch, ",") : NULL; at; at = strtok(NULL, ","))
    if (options.watched_count < WATCHED_MAX) options.watched[options.watched_count++] = atol(at);
  bound("targets", options.target_count, 1, TARGETS_MAX);
  bound("size", options.size, BODY_MIN, 128 << 20);
  bound("window", options.window, 1, 1 << 20);
  bound("pubs", options.publishers, 1, WORKERS_MAX);
  bound("cons", options.consumers, 1, WORKERS_MAX);
  bound("prefetch", options.prefetch, 1, 65535);
  bound("ack-every", options.ack_every, 1, options.prefetch);
  bound("queues", options.queues, 1, 10000000);
  bound("priorities", options.priorities, 0, PRIORITIES_MAX);
  if (!options.amqp10) return;
  bound("size", options.size, BODY_MIN, 100000); /* one frame each */
  if (options.tls || options.priorities > 0) refuse("--amqp10", "without --tls and --priorities");
}

/* --------------------------------------------------------- declare and delete */

static int by_value(const void *a, const void *b) {
  double left = *(const double *)a, right = *(const double *)b;
  return (left > right) - (left < right);
}

/* Do it to every queue, in turn over a connection to each target; print how long it took. */
static int each_queue(const char *mode, bool (*act)(Wire *, const char *), bool print) {
  Wire wires[TARGETS_MAX];
  double *took = calloc((size_t)options.queues, sizeof *took);
  if (took == NULL) abort();
  for (int i = 0; i < options.target_count; i++)
    if (!wire_open(&wires[i], i)) {
      fprintf(stderr, "%s\n", wires[i].error);
      return 1;
    }
  uint64_t began = now_ns();
  for (long i = 0; i < options.queues; i++) {
    char name[256];
    Wire *wire = &wires[i % options.target_count];
    uint64_t asked = now_ns();
    queue_name(name, sizeof name, i);
    if (!act(wire, name)) {
      fprintf(stderr, "%s %s: %s\n", mode, name, wire->error);
      return 1;
    }
    took[i] = (double)(now_ns() - asked) / 1e6;
  }
  double seconds = (double)(now_ns() - began) / 1e9;
  qsort(took, (size_t)options.queues, sizeof *took, by_value);
  if (print)
    printf("{\"mode\":\"%s\",\"queues\":%ld,\"seconds\":%.3f,\"per_s\":%.1f,\"p50_ms\":%.3f,"
           "\"p99_ms\":%.3f,\"max_ms\":%.3f}\n",
           mode, options.queues, seconds, (double)options.queues / seconds,
           took[options.queues / 2], took[options.queues * 99 / 100], took[options.queues - 1]);
  for (int i = 0; i < options.target_count; i++) wire_close(&wires[i]);
  free(took);
  return 0;
}

/* Delete the queues at the first target that answers: a node may have been killed. */
static void delete_after(void) {
  Wire wire;
  for (int target = 0; target < options.target_count; target++) {
    bool open = wire_open(&wire, target);
    char name[256];
    for (long i = 0; open && i < options.queues; i++) {
      queue_name(name, sizeof name, i);
      wire_delete(&wire, name);
    }
    wire_close(&wire);
    if (open) return;
  }
}

/* --------------------------------------------------------------------- load */

typedef struct {
  Worker *publishers, *consumers;
  long publisher_count, consumer_count;
  uint64_t began, measured_from, measured_to, killed_at;
  Meter before, after;
} Load;

static uint64_t total_of(Worker *workers, long count) {
  uint64_t total = 0;
  for (long i = 0; i < count; i++) total += workers[i].total;
  return total;
}

static bool all_done(Worker *workers, long count) {
  for (long i = 0; i < count; i++)
    if (!workers[i].done) return false;
  return true;
}

static void start(Worker *workers, long count, void *(*run)(void *)) {
  for (long i = 0; i < count; i++) {
    workers[i].id = (int)i;
    if (pthread_create(&workers[i].thread, NULL, run, &workers[i]) != 0) abort();
  }
}

/* End the program when one could not even connect: there is nothing to measure then. */
static void require_started(const Worker *workers, long count) {
  for (long i = 0; i < count; i++)
    if (workers[i].errors > 0) {
      fprintf(stderr, "%s\n", workers[i].error);
      exit(1);
    }
}

static double seconds_since(uint64_t ns) { return (double)(now_ns() - ns) / 1e9; }

static void kill_when_due(Load *load) {
  if (options.kill_pid == 0 || load->killed_at || seconds_since(load->began) < options.kill_at_s)
    return;
  if (kill((pid_t)options.kill_pid, SIGKILL) != 0)
    fprintf(stderr, "kill %ld: %s\n", options.kill_pid, strerror(errno));
  load->killed_at = now_ns();
}

static void measure(Load *load, bool on) {
  if (on) {
    shared.confirm_gap_ns = shared.delivery_gap_ns = 0;
    load->measured_from = now_ns();
    /* Where nothing was confirmed or delivered yet, the gap begins here. */
    if (shared.last_confirm_ns == 0) shared.last_confirm_ns = load->measured_from;
    if (shared.last_delivery_ns == 0) shared.last_delivery_ns = load->measured_from;
    meter_read(&load->before);
  } else {
    load->measured_to = now_ns();
    meter_read(&load->after);
  }
  shared.measuring = on;
}

/* Wait until the consumers have what they can still get. */
static void await_deliveries(Load *load, bool drain) {
  uint64_t seen = 0, seen_at = now_ns();
  while (!all_done(load->consumers, load->consumer_count)) {
    usleep(WATCH_US * 10);
    kill_when_due(load);
    uint64_t now = total_of(load->consumers, load->consumer_count);
    if (now != seen) {
      seen = now;
      seen_at = now_ns();
    }
    double idle = seconds_since(seen_at);
    if (idle > options.idle_end_s) return;
    if (idle < QUIET_NS / 1e9) continue;
    if (drain ? options.expect > 0 && seen_distinct() >= (uint64_t)options.expect
              : confirmed_but_not_seen() == 0)
      return;
  }
}

static void run_pubsub(Load *load) {
  while (seconds_since(load->began) < options.warmup_s + options.seconds) {
    usleep(WATCH_US);
    kill_when_due(load);
    if (!shared.measuring && seconds_since(load->began) >= options.warmup_s) measure(load, true);
    if (all_done(load->publishers, load->publisher_count)) break;
  }
  if (load->measured_from == 0) measure(load, true);
  /* A stall that lasts until the end is a gap too. */
  note_gap(&shared.last_confirm_ns, &shared.confirm_gap_ns, now_ns());
  note_gap(&shared.last_delivery_ns, &shared.delivery_gap_ns, now_ns());
  measure(load, false);
  shared.stop_publishing = true;
  while (!all_done(load->publishers, load->publisher_count)) usleep(WATCH_US);
  await_deliveries(load, false);
}

static void run_fill(Load *load) {
  measure(load, true);
  while (!all_done(load->publishers, load->publisher_count)) usleep(WATCH_US);
  measure(load, false);
  if (shared.last_confirm_ns) load->measured_to = shared.last_confirm_ns;
}

static void run_drain(Load *load) {
  measure(load, true);
  await_deliveries(load, true);
  measure(load, false);
  if (shared.last_delivery_ns) load->measured_to = shared.last_delivery_ns;
}

static void run(Load *load, const char *mode) {
  bool fill = strcmp(mode, "fill") == 0, drain = strcmp(mode, "drain") == 0;
  load->publisher_count = drain ? 0 : options.publishers;
  load->consumer_count = fill ? 0 : options.consumers;
  load->publishers = calloc((size_t)load->publisher_count + 1, sizeof(Worker));
  load->consumers = calloc((size_t)load->consumer_count + 1, sizeof(Worker));
  if (load->publishers == NULL || load->consumers == NULL) abort();
  shared.run = (uint32_t)(now_ns() / 1000) ^ (uint32_t)getpid() << 16;
  start(load->consumers, load->consumer_count, consumer_run);
  start(load->publishers, load->publisher_count, publisher_run);
  while (shared.ready < load->publisher_count + load->consumer_count) usleep(WATCH_US);
  require_started(load->consumers, load->consumer_count);
  require_started(load->publishers, load->publisher_count);
  load->began = now_ns();
  shared.go = true;
  if (fill)
    run_fill(load);
  else if (drain)
    run_drain(load);
  else
    run_pubsub(load);
  shared.stop_publishing = shared.stop_consuming = true;
  for (long i = 0; i < load->publisher_count; i++) pthread_join(load->publishers[i].thread, NULL);
  for (long i = 0; i < load->consumer_count; i++) pthread_join(load->consumers[i].thread, NULL);
}

/* ------------------------------------------------------------------- report */

static void print_latency(const char *name, Worker *workers, long count) {
  static Histogram all;
  memset(&all, 0, sizeof all);
  for (long i = 0; i < count; i++) histogram_merge(&all, &workers[i].latency);
  printf(",\n \"%s\":{\"p50\":%.3f,\"p99\":%.3f,\"p999\":%.3f,\"max\":%.3f}", name,
         histogram_ms(&all, .5), histogram_ms(&all, .99), histogram_ms(&all, .999),
         (double)all.max / 1e6);
}

static void print_cpu(const Load *load) {
  const Meter *from = &load->before, *to = &load->after;
  double wall = (double)(to->at_ns - from->at_ns) / 1e9, watched = 0;
  double own = to->own_s - from->own_s, machine = to->machine_s - from->machine_s;
  if (wall <= 0) wall = 1e-9;
  printf(",\n \"cpu\":{\"wall_s\":%.3f,\"generator_cores\":%.3f,\"watched\":[", wall, own / wall);
  for (int i = 0; i < options.watched_count; i++) {
    /* A killed process has no counters any more: what it used until then is not known. */
    double used = to->process_s[i] - from->process_s[i];
    watched += used > 0 ? used : 0;
    printf("%s{\"cores\":%.3f,\"rss_mb\":%.1f}", i ? "," : "", used > 0 ? used / wall : 0,
           to->process_mb[i]);
  }
  double others = machine - own - watched;
  printf("],\"watched_cores\":%.3f,\"other_cores\":%.3f}", watched / wall,
         others > 0 ? others / wall : 0);
}

/* Texts of the broker go into the report: quotes, backslashes and controls are left out. */
static void print_text(const char *name, const char *text) {
  printf(",\n \"%s\":\"", name);
  for (; *text; text++)
    if (*text != '"' && *text != '\\' && (unsigned char)*text >= ' ') putchar(*text);
  putchar('"');
}

#define ADD(field) sum.field += one->field

static Worker sum_of(Worker *workers, long count) {
  Worker sum = {0};
  for (long i = 0; i < count; i++) {
    Worker *one = &workers[i];
    ADD(measured);
    ADD(total);
    ADD(published);
    ADD(nacked);
    ADD(acked);
    ADD(distinct);
    ADD(duplicates);
    ADD(order_violations);
    ADD(redelivered);
    ADD(bad_bodies);
    ADD(errors);
    ADD(reconnects);
    ADD(blocked);
    if (one->error[0]) memcpy(sum.error, one->error, sizeof sum.error);
  }
  return sum;
}

#undef ADD

/* Messages that should have been delivered and were not. */
static uint64_t lost_of(const char *mode, const Worker *consumed) {
  if (strcmp(mode, "fill") == 0) return 0;
  if (strcmp(mode, "pubsub") == 0) return confirmed_but_not_seen();
  if (options.expect == 0) return missing_below_last();
  uint64_t expect = (uint64_t)options.expect;
  return consumed->distinct < expect ? expect - consumed->distinct : 0;
}

static void report(const Load *load, const char *mode) {
  Worker published = sum_of(load->publishers, load->publisher_count);
  Worker consumed = sum_of(load->consumers, load->consumer_count);
  double seconds = (double)(load->measured_to - load->measured_from) / 1e9;
  if (seconds <= 0) seconds = 1e-9;
  printf("{\"mode\":\"%s\",\"queues\":%ld,\"pubs\":%ld,\"cons\":%ld,\"size\":%ld,\"window\":%ld,"
         "\"prefetch\":%ld,\"ack_every\":%ld,\"rate\":%.0f,\n",
         mode, options.queues, load->publisher_count, load->consumer_count, options.size,
         options.window, options.prefetch, options.ack_every, options.rate);
  printf(" \"seconds\":%.3f,\"published_per_s\":%.1f,\"consumed_per_s\":%.1f,\n", seconds,
         (double)published.measured / seconds, (double)consumed.measured / seconds);
  printf(" \"published\":%lu,\"confirmed\":%lu,\"nacked\":%lu,\"delivered\":%lu,\"distinct\":%lu,"
         "\"acked\":%lu,\n",
         published.published, published.total, published.nacked, consumed.total,
         consumed.distinct, consumed.acked);
  printf(" \"lost\":%lu,\"duplicates\":%lu,\"order_violations\":%lu,\"bad_bodies\":%lu,"
         "\"redelivered\":%lu,\"unconfirmed_but_delivered\":%lu,\n",
         lost_of(mode, &consumed), consumed.duplicates, consumed.order_violations,
         consumed.bad_bodies, consumed.redelivered,
         strcmp(mode, "pubsub") == 0 ? seen_but_not_confirmed() : 0);
  printf(" \"errors\":%lu,\"reconnects\":%lu,\"blocked\":%lu,\n",
         published.errors + consumed.errors, published.reconnects + consumed.reconnects,
         published.blocked);
  printf(" \"longest_confirm_gap_ms\":%.1f,\"longest_delivery_gap_ms\":%.1f",
         (double)shared.confirm_gap_ns / 1e6, (double)shared.delivery_gap_ns / 1e6);
  print_latency("confirm_ms", load->publishers, load->publisher_count);
  print_latency("e2e_ms", load->consumers, load->consumer_count);
  print_cpu(load);
  if (load->killed_at)
    printf(",\n \"kill\":{\"at_s\":%.3f}", (double)(load->killed_at - load->began) / 1e9);
  const char *error = published.error[0] ? published.error : consumed.error;
  if (error[0]) print_text("last_error", error);
  printf("}\n");
}

int main(int count, char **arguments) {
  signal(SIGPIPE, SIG_IGN);
  if (count < 2 || strcmp(arguments[1], "--help") == 0) {
    fputs(HELP, count < 2 ? stderr : stdout);
    return count < 2 ? 2 : 0;
  }
  const char *mode = arguments[1];
  parse(count, arguments);
  if (strcmp(mode, "declare") == 0) return each_queue(mode, wire_declare, true);
  if (strcmp(mode, "delete") == 0) return each_queue(mode, wire_delete, true);
  if (strcmp(mode, "fill") == 0 && options.count == 0) options.count = 100000;
  if (strcmp(mode, "fill") && strcmp(mode, "drain") && strcmp(mode, "pubsub"))
    refuse("unknown mode", mode);
  if (!options.no_declare && each_queue("declare", wire_declare, false) != 0) return 1;
  static Load load;
  run(&load, mode);
  if (options.delete_after) delete_after();
  report(&load, mode);
  return 0;
}
