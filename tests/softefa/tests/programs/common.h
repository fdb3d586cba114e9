/* What the cases share: checks that say what they found, and a pair of queue pairs that can reach each other. */
#pragma once
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <infiniband/efadv.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EQ(found, expected)                                                                                            \
	do {                                                                                                           \
		long long found_ = (long long)(found), expected_ = (long long)(expected);                             \
		if (found_ != expected_) {                                                                             \
			fprintf(stderr, "%s:%d: %s is %lld (%#llx), not %lld; errno %d (%s)\n", __FILE__, __LINE__,    \
				#found, found_, found_, expected_, errno, strerror(errno));                             \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

#define TRUE(condition) EQ(!!(condition), 1)

/* A call that must fail with this errno, which it returns or leaves in errno. */
#define FAILS(call, expected)                                                                                          \
	do {                                                                                                           \
		errno = 0;                                                                                             \
		long long answer_ = (long long)(call);                                                                 \
		EQ(answer_ > 0 ? answer_ : errno, expected);                                                           \
	} while (0)

/* A call that must give no object, with this errno. */
#define NO(call, expected)                                                                                             \
	do {                                                                                                           \
		errno = 0;                                                                                             \
		TRUE((call) == NULL);                                                                                  \
		EQ(errno, expected);                                                                                   \
	} while (0)

/* What this rdma-core cannot ask for: told, and counted by who runs this. */
#define SKIP(reason) printf("skipped: %s\n", reason)

#define QKEY 0x11223344u
#define DEPTH 16

/* One side: a device that is open, a domain, queues, and memory. */
struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_qp *qp;
	struct ibv_ah *ah; /* of the other side */
	char *memory;
	struct ibv_mr *mr;
	union ibv_gid gid;
};

#define MEMORY 65536

struct ibv_context *open_device(int nth);
struct ibv_qp *create_qp(struct side *s, int recv_sge);
void bring_up(struct ibv_qp *qp, int rnr_retry);
/* A side on the nth device: with a channel if asked for, its queue pair in RTS. */
void open_side(struct side *s, int nth, int with_channel);
void close_side(struct side *s);
/* Two sides, each with an address handle of the other; on one device if there is one. */
void open_pair(struct side *a, struct side *b);
struct ibv_ah *resolve(struct side *from, union ibv_gid gid);
/* The next completion, waited for for ten seconds. */
struct ibv_wc completion(struct ibv_cq *cq);
void post_recv(struct side *s, uint64_t id, size_t offset, uint32_t length);
void post_send(struct side *from, struct side *to, uint64_t id, size_t offset, uint32_t length);
/* Sends with everything open to change. */
struct request {
	struct ibv_send_wr wr;
	struct ibv_sge sge[2];
};
void prepare(struct request *r, struct side *from, struct side *to, uint64_t id, size_t offset, uint32_t length);
void post(struct side *from, struct request *r);
void fill(struct side *s, size_t offset, size_t length, unsigned seed);
void check(struct side *s, size_t offset, size_t length, unsigned seed);
/* What arrived, and what was sent, as it should. */
void received(struct side *s, uint64_t id, uint32_t length);
void sent(struct side *s, uint64_t id);
/* Whether a variable, SOFTEFA_LAYOUT and such, says this. */
int expects(const char *variable, const char *what);
/* Posts a read of the other side's memory by the newer interface. */
struct ibv_qp *create_reader(struct side *s);

void device_case(void);
void objects_case(void);
void regions_case(void);
void states_case(void);
void mappings_case(void);
void many_case(void);
void send_case(void);
void wrap_case(void);
void reset_case(void);
void read_case(void);
void write_case(void);
void ud_case(void);
void sgid_case(void);
void statuses_case(void);
void unmapped_case(void);
void events_case(void);
void wakeups_case(void);
void signals_case(void);
void drained_case(void);
void unread_case(void);
void fork_case(void);
void busy_case(void);
void vfork_case(void);
void abandon_case(void);
void latency_case(void);
void scatter_case(void);
void wide_case(void);
void ids_case(void);
void malformed_case(void);
void mismatch_case(void);
void external_case(void);
void address_case(void);
void dmabuf_case(void);
void newer_case(void);
void limits_case(void);
void shared_case(void);
void counters_case(void);
