/* CPU and memory of this process, the watched ones, and the machine. */
#include "load.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static double process_cpu_s(long pid) {
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%ld/stat", pid);
  FILE *file = fopen(path, "r");
  if (file == NULL) return 0;
  size_t count = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[count] = 0;
  char *rest = strrchr(text, ')'); /* the name before it may hold blanks */
  unsigned long user = 0, system = 0;
  if (rest != NULL)
    sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
  return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static double process_mb(long pid) {
  char path[64];
  unsigned long pages = 0;
  snprintf(path, sizeof path, "/proc/%ld/statm", pid);
  FILE *file = fopen(path, "r");
  if (file == NULL) return 0;
  if (fscanf(file, "%*u %lu", &pages) != 1) pages = 0;
  fclose(file);
  return (double)pages * (double)sysconf(_SC_PAGESIZE) / 1048576.0;
}

/* Seconds that the machine's cores were busy, all together. */
static double machine_cpu_s(void) {
  unsigned long long user = 0, nice = 0, system = 0, idle, wait, irq = 0, soft = 0;
  FILE *file = fopen("/proc/stat", "r");
  if (file == NULL) return 0;
  if (fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle, &wait,
             &irq, &soft) != 7)
    user = nice = system = irq = soft = 0;
  fclose(file);
  return (double)(user + nice + system + irq + soft) / (double)sysconf(_SC_CLK_TCK);
}

void meter_read(Meter *meter) {
  struct rusage own;
  getrusage(RUSAGE_SELF, &own);
  meter->at_ns = now_ns();
  meter->own_s = (double)(own.ru_utime.tv_sec + own.ru_stime.tv_sec) +
                 (double)(own.ru_utime.tv_usec + own.ru_stime.tv_usec) / 1e6;
  meter->machine_s = machine_cpu_s();
  for (int i = 0; i < options.watched_count; i++) {
    meter->process_s[i] = process_cpu_s(options.watched[i]);
    meter->process_mb[i] = process_mb(options.watched[i]);
  }
}
