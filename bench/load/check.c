/* Bodies, the record of what was confirmed and delivered, latencies. */
#include "load.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A body: 4 bytes of mark, a checksum over all that follows, the stamp, filling. One of less than
 * BODY_TIMED bytes: the checksum, which the mark has changed; run; 2 bytes of publisher, 6 of sequence.
 * The numbers are in the machine's byte order: the program that writes also reads. */
#define MARK 0x31444c57u /* "WLD1" */
#define SEQUENCE_MAX (UINT64_C(1) << 40)
#define FILLING_BYTES 4096
#define FILLING_STEPS 61

uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* --------------------------------------------------------------------- bits */

bool bits_set(Bits *bits, uint64_t at) {
  if (at / 64 >= bits->count) {
    size_t count = (at / 64 + 1024) * 2;
    uint64_t *words = realloc(bits->words, count * sizeof *words);
    if (words == NULL) abort();
    memset(words + bits->count, 0, (count - bits->count) * sizeof *words);
    bits->words = words;
    bits->count = count;
  }
  uint64_t bit = UINT64_C(1) << (at % 64);
  bool was_clear = !(bits->words[at / 64] & bit);
  bits->words[at / 64] |= bit;
  return was_clear;
}

/* ------------------------------------------------------------------ sources */

static Source *sources[SOURCES_MAX];
static int source_count;
static pthread_mutex_t sources_mutex = PTHREAD_MUTEX_INITIALIZER;

Source *source_of(uint32_t run, uint32_t publisher) {
  Source *found = NULL;
  pthread_mutex_lock(&sources_mutex);
  for (int i = 0; i < source_count && found == NULL; i++)
    if (sources[i]->run == run && sources[i]->publisher == publisher) found = sources[i];
  if (found == NULL && source_count < SOURCES_MAX) {
    found = calloc(1, sizeof *found);
    if (found == NULL) abort();
    found->run = run;
    found->publisher = publisher;
    found->index = source_count;
    pthread_mutex_init(&found->mutex, NULL);
    sources[source_count++] = found;
  }
  pthread_mutex_unlock(&sources_mutex);
  return found;
}

/* Count the bits of `a` that are not in `b`. */
static uint64_t count_without(const Bits *a, const Bits *b) {
  uint64_t total = 0;
  for (size_t i = 0; i < a->count; i++)
    total += (uint64_t)__builtin_popcountll(a->words[i] & ~(i < b->count ? b->words[i] : 0));
  return total;
}

enum question { LOST, UNCONFIRMED, MISSING, DISTINCT };

static uint64_t sum(enum question question) {
  uint64_t total = 0;
  pthread_mutex_lock(&sources_mutex);
  for (int i = 0; i < source_count; i++) {
    Source *source = sources[i];
    pthread_mutex_lock(&source->mutex);
    switch (question) {
      case LOST: total += count_without(&source->confirmed, &source->seen); break;
      case UNCONFIRMED: total += count_without(&source->seen, &source->confirmed); break;
      case MISSING: total += source->last - source->seen_count; break;
      case DISTINCT: total += source->seen_count; break;
    }
    pthread_mutex_unlock(&source->mutex);
  }
  pthread_mutex_unlock(&sources_mutex);
  return total;
}

uint64_t confirmed_but_not_seen(void) { return sum(LOST); }
uint64_t seen_but_not_confirmed(void) { return sum(UNCONFIRMED); }
uint64_t missing_below_last(void) { return sum(MISSING); }
uint64_t seen_distinct(void) { return sum(DISTINCT); }

/* ------------------------------------------------------------------- bodies */

static uint8_t filling[FILLING_BYTES + FILLING_STEPS];
static pthread_once_t filling_once = PTHREAD_ONCE_INIT;

static void make_filling(void) {
  uint32_t state = 2463534242u;
  for (size_t i = 0; i < sizeof filling; i++) {
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    filling[i] = (uint8_t)state;
  }
}

static uint32_t checksum(const uint8_t *bytes, size_t count) {
  uint64_t value = count * UINT64_C(0x9e3779b97f4a7c15), word;
  for (; count >= 8; bytes += 8, count -= 8) {
    memcpy(&word, bytes, 8);
    value = (value ^ word) * UINT64_C(0xff51afd7ed558ccd);
    value ^= value >> 32;
  }
  for (; count > 0; bytes++, count--) value = (value ^ *bytes) * UINT64_C(0x100000001b3);
  return (uint32_t)(value ^ value >> 32);
}

static void short_body_write(uint8_t *body, size_t size, const Stamp *stamp) {
  uint64_t both = (uint64_t)stamp->publisher << 48 | stamp->sequence;
  memcpy(body + 4, &stamp->run, 4);
  memcpy(body + 8, &both, 8);
  memset(body + BODY_MIN, 0, size - BODY_MIN);
  uint32_t sum = checksum(body + 4, size - 4) ^ MARK;
  memcpy(body, &sum, 4);
}

static bool short_body_read(const uint8_t *body, size_t size, Stamp *stamp) {
  uint32_t sum;
  uint64_t both;
  memcpy(&sum, body, 4);
  if (sum != (checksum(body + 4, size - 4) ^ MARK)) return false;
  memcpy(&stamp->run, body + 4, 4);
  memcpy(&both, body + 8, 8);
  stamp->publisher = (uint32_t)(both >> 48);
  stamp->sequence = both & ((UINT64_C(1) << 48) - 1);
  stamp->sent_ns = 0;
  return stamp->sequence < SEQUENCE_MAX;
}

void body_write(uint8_t *body, size_t size, const Stamp *stamp) {
  if (size < BODY_TIMED) {
    short_body_write(body, size, stamp);
    return;
  }
  pthread_once(&filling_once, make_filling);
  uint32_t mark = MARK, sum;
  memcpy(body, &mark, 4);
  memcpy(body + 8, &stamp->run, 4);
  memcpy(body + 12, &stamp->publisher, 4);
  memcpy(body + 16, &stamp->sequence, 8);
  memcpy(body + 24, &stamp->sent_ns, 8);
  for (size_t at = BODY_TIMED; at < size; at += FILLING_BYTES)
    memcpy(body + at, filling + stamp->sequence % FILLING_STEPS,
           size - at < FILLING_BYTES ? size - at : FILLING_BYTES);
  sum = checksum(body + 8, size - 8);
  memcpy(body + 4, &sum, 4);
}

bool body_read(const uint8_t *body, size_t size, Stamp *stamp) {
  uint32_t mark, sum;
  if (size < BODY_MIN) return false;
  if (size < BODY_TIMED) return short_body_read(body, size, stamp);
  memcpy(&mark, body, 4);
  memcpy(&sum, body + 4, 4);
  if (mark != MARK || sum != checksum(body + 8, size - 8)) return false;
  memcpy(&stamp->run, body + 8, 4);
  memcpy(&stamp->publisher, body + 12, 4);
  memcpy(&stamp->sequence, body + 16, 8);
  memcpy(&stamp->sent_ns, body + 24, 8);
  return stamp->sequence < SEQUENCE_MAX;
}

/* ---------------------------------------------------------------- histogram */

/* 64 slots for every doubling: a value is known within 1/64. */
void histogram_add(Histogram *histogram, uint64_t ns) {
  size_t slot = ns;
  if (ns >= 64) {
    unsigned exponent = 63u - (unsigned)__builtin_clzll(ns);
    slot = (exponent - 5) * 64 + (ns >> (exponent - 6) & 63);
  }
  histogram->slots[slot]++;
  histogram->count++;
  if (ns > histogram->max) histogram->max = ns;
}

void histogram_merge(Histogram *into, const Histogram *from) {
  for (size_t i = 0; i < HISTOGRAM_SLOTS; i++) into->slots[i] += from->slots[i];
  into->count += from->count;
  if (from->max > into->max) into->max = from->max;
}

double histogram_ms(const Histogram *histogram, double quantile) {
  uint64_t below = 0, wanted = (uint64_t)(quantile * (double)histogram->count);
  if (histogram->count == 0) return 0;
  for (size_t i = 0; i < HISTOGRAM_SLOTS; i++) {
    below += histogram->slots[i];
    if (below > wanted) {
      if (i < 64) return (double)i / 1e6;
      uint64_t low = (UINT64_C(64) + i % 64) << (i / 64 - 1);
      uint64_t middle = low + (UINT64_C(1) << (i / 64 - 1)) / 2;
      return (double)(middle < histogram->max ? middle : histogram->max) / 1e6;
    }
  }
  return (double)histogram->max / 1e6;
}
