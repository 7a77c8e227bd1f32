# Functions of Proton's engine for the compiled modules of the kernel; interpreted: proton_calls.py.
#
# They are called by the addresses that cffi has of them: Proton may be in one of two packages, and
# the kernel is compiled without its headers. Objects are addresses: `warren_wire.amqp10.deliveries`.

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    typedef unsigned long long pn_at;
    typedef struct { size_t size; const char *start; } pn_named;
    static struct {
      void *(*collector_peek)(void *);
      int (*collector_pop)(void *); /* a bool, of which nothing is read */
      int (*event_type)(void *);
      void *(*event_delivery)(void *);
      void *(*delivery_link)(void *);
      unsigned char (*delivery_partial)(void *);
      unsigned char (*delivery_aborted)(void *);
      unsigned char (*delivery_settled)(void *);
      size_t (*delivery_pending)(void *);
      uint64_t (*delivery_remote_state)(void *);
      void (*delivery_update)(void *, uint64_t);
      void (*delivery_settle)(void *);
      void *(*delivery)(void *, pn_named);
      void *(*link_current)(void *);
      unsigned char (*link_advance)(void *);
      ptrdiff_t (*link_recv)(void *, char *, size_t);
      ptrdiff_t (*link_send)(void *, const char *, size_t);
    } pn;
    #define pn_p(at) ((void *)(uintptr_t)(at))
    static void pn_bind(int i, pn_at at) { ((void **)&pn)[i] = pn_p(at); }
    static pn_at pn_peek(pn_at c) { return (uintptr_t)pn.collector_peek(pn_p(c)); }
    static void pn_pop(pn_at c) { pn.collector_pop(pn_p(c)); }
    static int pn_kind(pn_at e) { return pn.event_type(pn_p(e)); }
    static pn_at pn_event_of(pn_at e) { return (uintptr_t)pn.event_delivery(pn_p(e)); }
    static pn_at pn_link_of(pn_at d) { return (uintptr_t)pn.delivery_link(pn_p(d)); }
    static int pn_partial(pn_at d) { return pn.delivery_partial(pn_p(d)); }
    static int pn_aborted(pn_at d) { return pn.delivery_aborted(pn_p(d)); }
    static int pn_settled(pn_at d) { return pn.delivery_settled(pn_p(d)); }
    static pn_at pn_pending(pn_at d) { return pn.delivery_pending(pn_p(d)); }
    static pn_at pn_state(pn_at d) { return pn.delivery_remote_state(pn_p(d)); }
    static void pn_update(pn_at d, pn_at state) { pn.delivery_update(pn_p(d), state); }
    static void pn_settle(pn_at d) { pn.delivery_settle(pn_p(d)); }
    static pn_at pn_current(pn_at l) { return (uintptr_t)pn.link_current(pn_p(l)); }
    static void pn_advance(pn_at l) { pn.link_advance(pn_p(l)); }
    static void pn_recv(pn_at l, char *to, size_t n) { pn.link_recv(pn_p(l), to, n); }
    static void pn_send(pn_at l, const char *p, size_t n) { pn.link_send(pn_p(l), p, n); }
    static pn_at pn_begin(pn_at l, pn_at number) {
      char digits[20], *at = digits + sizeof digits;
      do *--at = (char)('0' + number % 10); while (number /= 10);
      pn_named tag = {(size_t)(digits + sizeof digits - at), at};
      return (uintptr_t)pn.delivery(pn_p(l), tag); /* which copies the tag */
    }
    """
    ctypedef unsigned long long Address "pn_at"
    void pn_bind(int i, Address at) noexcept
    Address pn_peek(Address collector) noexcept
    void pn_pop(Address collector) noexcept
    int pn_kind(Address event) noexcept
    Address pn_event_of(Address event) noexcept
    Address pn_link_of(Address delivery) noexcept
    bint pn_partial(Address delivery) noexcept
    bint pn_aborted(Address delivery) noexcept
    bint pn_settled(Address delivery) noexcept
    Address pn_pending(Address delivery) noexcept
    Address pn_state(Address delivery) noexcept
    void pn_update(Address delivery, Address state) noexcept
    void pn_settle(Address delivery) noexcept
    Address pn_current(Address link) noexcept
    void pn_advance(Address link) noexcept
    void pn_recv(Address link, char* to, size_t size) noexcept
    void pn_send(Address link, const char* p, size_t size) noexcept
    Address pn_begin(Address link, Address number) noexcept
