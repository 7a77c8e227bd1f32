/* TLS: a thread per connection between librabbitmq's socket, one of a pair, and the broker's.
 *
 * Certificates are not checked: this measures a broker on the same machine.
 */
#include "load.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef WITH_TLS

int tls_relay(int net, const char *host) {
  (void)net;
  (void)host;
  return -1;
}

#else

#include <openssl/ssl.h>

#define PIECE_BYTES 65536

/* Bytes that wait in one direction: data[at .. end). */
typedef struct { size_t at, end; uint8_t data[PIECE_BYTES]; } Piece;
typedef struct { SSL *tls; int net, local; bool wants_write; Piece up, down; } Relay;
typedef enum { MOVED, WAITS, ENDED } Moved;

static Moved failed(void) {
  return errno == EAGAIN || errno == EINTR ? WAITS : ENDED;
}

static Moved tls_failed(Relay *relay, int result) {
  int why = SSL_get_error(relay->tls, result);
  if (why == SSL_ERROR_WANT_WRITE) relay->wants_write = true;
  return why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? WAITS : ENDED;
}

static Moved upwards(Relay *relay) {
  Piece *piece = &relay->up;
  if (piece->at == piece->end) {
    ssize_t got = recv(relay->local, piece->data, sizeof piece->data, 0);
    if (got <= 0) return got == 0 ? ENDED : failed();
    piece->at = 0;
    piece->end = (size_t)got;
  }
  int sent = SSL_write(relay->tls, piece->data + piece->at, (int)(piece->end - piece->at));
  if (sent <= 0) return tls_failed(relay, sent);
  piece->at += (size_t)sent;
  return MOVED;
}

static Moved downwards(Relay *relay) {
  Piece *piece = &relay->down;
  if (piece->at == piece->end) {
    int got = SSL_read(relay->tls, piece->data, sizeof piece->data);
    if (got <= 0) return tls_failed(relay, got);
    piece->at = 0;
    piece->end = (size_t)got;
  }
  ssize_t sent =
      send(relay->local, piece->data + piece->at, piece->end - piece->at, MSG_NOSIGNAL);
  if (sent < 0) return failed();
  piece->at += (size_t)sent;
  return MOVED;
}

static void *run(void *given) {
  Relay *relay = given;
  for (;;) {
    relay->wants_write = false;
    Moved up = upwards(relay), down = downwards(relay);
    if (up == ENDED || down == ENDED) break;
    if (up == MOVED || down == MOVED) continue;
    struct pollfd waits[2] = {{.fd = relay->net, .events = POLLIN}, {.fd = relay->local}};
    if (relay->wants_write) waits[0].events |= POLLOUT;
    if (relay->up.at == relay->up.end) waits[1].events |= POLLIN;
    if (relay->down.at < relay->down.end) {
      waits[0].events &= ~POLLIN;
      waits[1].events |= POLLOUT;
    }
    poll(waits, 2, 1000);
  }
  SSL_shutdown(relay->tls);
  SSL_free(relay->tls);
  close(relay->net);
  close(relay->local);
  free(relay);
  return NULL;
}

int tls_relay(int net, const char *host) {
  static SSL_CTX *context;
  static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&once);
  if (context == NULL) context = SSL_CTX_new(TLS_client_method());
  pthread_mutex_unlock(&once);
  if (context == NULL) abort();
  Relay *relay = calloc(1, sizeof *relay);
  if (relay == NULL) abort();
  relay->net = net;
  relay->tls = SSL_new(context);
  SSL_set_mode(relay->tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_set_fd(relay->tls, net);
  SSL_set_tlsext_host_name(relay->tls, host);
  fcntl(net, F_SETFL, fcntl(net, F_GETFL) & ~O_NONBLOCK);
  int pair[2];
  if (SSL_connect(relay->tls) != 1 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) {
    SSL_free(relay->tls);
    free(relay);
    return -1;
  }
  relay->local = pair[1];
  fcntl(net, F_SETFL, fcntl(net, F_GETFL) | O_NONBLOCK);
  fcntl(pair[1], F_SETFL, fcntl(pair[1], F_GETFL) | O_NONBLOCK);
  pthread_t thread;
  if (pthread_create(&thread, NULL, run, relay) != 0) abort();
  pthread_detach(thread);
  return pair[0];
}

#endif
