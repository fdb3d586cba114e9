/*
 * The same work by libfabric's `efa-direct`, with the calls of `libefa.c`: two endpoints of one domain, for one thread.
 * Of how a batch is posted libfabric has FI_MORE: all but the last of sixteen have it.
 */
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BYTES 64
#define MANY 16
#define COUNTED __attribute__((noinline, noclone)) int

enum operation { SEND, WRITE, READ, RECV };

struct side {
	struct fid_ep *ep;
	struct fid_av *av;
	struct fid_cq *send_cq, *recv_cq;
	struct fid_mr *mr;
	void *desc;
	char *memory;
	struct fi_context2 *contexts;
	fi_addr_t other;
};

struct pair {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct side a, b;
	uint64_t remote, key;
	unsigned depth;
	struct fi_cq_data_entry done[MANY];
};

#define AT(side, nth) ((side)->memory + (size_t)(nth) * BYTES)

COUNTED counted_send(struct pair *p, unsigned nth)
{
	return fi_send(p->a.ep, AT(&p->a, nth), BYTES, p->a.desc, p->a.other, &p->a.contexts[nth]);
}

COUNTED counted_write(struct pair *p, unsigned nth)
{
	return fi_write(p->a.ep, AT(&p->a, nth), BYTES, p->a.desc, p->a.other, p->remote, p->key, &p->a.contexts[nth]);
}

COUNTED counted_read(struct pair *p, unsigned nth)
{
	return fi_read(p->a.ep, AT(&p->a, nth), BYTES, p->a.desc, p->a.other, p->remote, p->key, &p->a.contexts[nth]);
}

static inline int messages(struct side *s, unsigned first, int receive)
{
	for (unsigned i = 0; i < MANY; i++) {
		struct iovec iov = { AT(s, first + i), BYTES };
		struct fi_msg msg = { .msg_iov = &iov, .desc = &s->desc, .iov_count = 1,
				      .addr = receive ? FI_ADDR_UNSPEC : s->other, .context = &s->contexts[first + i] };
		uint64_t flags = FI_COMPLETION | (i + 1 < MANY ? FI_MORE : 0);
		int failed = receive ? fi_recvmsg(s->ep, &msg, flags) : fi_sendmsg(s->ep, &msg, flags);
		if (failed)
			return failed;
	}
	return 0;
}

static inline int rmas(struct pair *p, unsigned first, int read)
{
	struct side *s = &p->a;
	for (unsigned i = 0; i < MANY; i++) {
		struct iovec iov = { AT(s, first + i), BYTES };
		struct fi_rma_iov rma = { p->remote, BYTES, p->key };
		struct fi_msg_rma msg = { .msg_iov = &iov, .desc = &s->desc, .iov_count = 1, .addr = s->other,
					  .rma_iov = &rma, .rma_iov_count = 1, .context = &s->contexts[first + i] };
		uint64_t flags = FI_COMPLETION | (i + 1 < MANY ? FI_MORE : 0);
		int failed = read ? fi_readmsg(s->ep, &msg, flags) : fi_writemsg(s->ep, &msg, flags);
		if (failed)
			return failed;
	}
	return 0;
}

COUNTED counted_sends(struct pair *p, unsigned nth) { return messages(&p->a, nth, 0); }
COUNTED counted_writes(struct pair *p, unsigned nth) { return rmas(p, nth, 0); }
COUNTED counted_reads(struct pair *p, unsigned nth) { return rmas(p, nth, 1); }
COUNTED counted_recvs(struct pair *p, unsigned nth) { return messages(&p->a, nth, 1); }

COUNTED counted_recv(struct pair *p, unsigned nth)
{
	return fi_recv(p->a.ep, AT(&p->a, nth), BYTES, p->a.desc, FI_ADDR_UNSPEC, &p->a.contexts[nth]);
}

COUNTED counted_event(struct fid_cq *cq, struct fi_cq_data_entry *done) { return fi_cq_read(cq, done, 1); }
COUNTED counted_events(struct fid_cq *cq, struct fi_cq_data_entry *done) { return fi_cq_read(cq, done, MANY); }

#define CHECK(condition)                                                                                               \
	do                                                                                                             \
		if (!(condition))                                                                                      \
			return __LINE__;                                                                               \
	while (0)

extern void softefa_drive(void) __attribute__((weak));

int drive(void)
{
	CHECK(softefa_drive);
	softefa_drive();
	return 0;
}

int pair_post(struct pair *p, enum operation op, unsigned batch)
{
	static int (*const calls[4][2])(struct pair *, unsigned) = {
		{ counted_send, counted_sends },
		{ counted_write, counted_writes },
		{ counted_read, counted_reads },
		{ counted_recv, counted_recvs },
	};
	for (unsigned nth = 0; nth < p->depth; nth += batch)
		CHECK(calls[op][batch > 1](p, nth) == 0);
	return 0;
}

int pair_complete(struct pair *p, enum operation op, unsigned batch)
{
	struct fid_cq *cq = op == RECV ? p->a.recv_cq : p->a.send_cq;
	for (unsigned nth = 0; nth < p->depth; nth += batch)
		CHECK((batch > 1 ? counted_events : counted_event)(cq, p->done) == (int)batch);
	return 0;
}

int pair_empty(struct pair *p)
{
	for (unsigned nth = 0; nth < p->depth; nth++)
		CHECK(counted_event(p->a.send_cq, p->done) == -FI_EAGAIN);
	return 0;
}

int pair_prepare(struct pair *p, enum operation op)
{
	for (unsigned nth = 0; op == SEND && nth < p->depth; nth++)
		CHECK(fi_recv(p->b.ep, AT(&p->b, nth), BYTES, p->b.desc, FI_ADDR_UNSPEC, &p->b.contexts[nth]) == 0);
	return 0;
}

int pair_device(struct pair *p, enum operation op)
{
	for (unsigned nth = 0; op == RECV && nth < p->depth; nth++)
		CHECK(fi_send(p->b.ep, AT(&p->b, nth), BYTES, p->b.desc, p->b.other, &p->b.contexts[nth]) == 0);
	return drive();
}

int pair_clean_up(struct pair *p, enum operation op)
{
	struct fi_cq_data_entry done;
	for (unsigned nth = 0; (op == SEND || op == RECV) && nth < p->depth; nth++)
		CHECK(fi_cq_read(op == SEND ? p->b.recv_cq : p->b.send_cq, &done, 1) == 1);
	return 0;
}

static int open_side(struct pair *p, struct side *s, int one_cq)
{
	struct fi_cq_attr attr = { .size = 2 * p->depth, .format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_NONE };
	CHECK(fi_cq_open(p->domain, &attr, &s->send_cq, NULL) == 0);
	if (one_cq)
		s->recv_cq = s->send_cq;
	else
		CHECK(fi_cq_open(p->domain, &attr, &s->recv_cq, NULL) == 0);
	CHECK(fi_endpoint(p->domain, p->info, &s->ep, NULL) == 0);
	struct fi_av_attr av = { .type = FI_AV_TABLE };
	CHECK(fi_av_open(p->domain, &av, &s->av, NULL) == 0);
	CHECK(fi_ep_bind(s->ep, &s->av->fid, 0) == 0);
	if (one_cq) {
		CHECK(fi_ep_bind(s->ep, &s->send_cq->fid, FI_TRANSMIT | FI_RECV) == 0);
	} else {
		CHECK(fi_ep_bind(s->ep, &s->send_cq->fid, FI_TRANSMIT) == 0);
		CHECK(fi_ep_bind(s->ep, &s->recv_cq->fid, FI_RECV) == 0);
	}
	CHECK(fi_enable(s->ep) == 0);
	CHECK(s->contexts = calloc(p->depth, sizeof(*s->contexts)));
	size_t bytes = (size_t)p->depth * BYTES;
	CHECK(s->memory = aligned_alloc(4096, bytes));
	memset(s->memory, 7, bytes);
	uint64_t access = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
	CHECK(fi_mr_reg(p->domain, s->memory, bytes, access, 0, 0, 0, &s->mr, NULL) == 0);
	s->desc = fi_mr_desc(s->mr);
	return 0;
}

static int reach(struct side *from, struct side *to)
{
	char name[256];
	size_t len = sizeof(name);
	CHECK(fi_getname(&to->ep->fid, name, &len) == 0);
	CHECK(fi_av_insert(from->av, name, 1, &from->other, 0, NULL) == 1);
	return 0;
}

/* As in `libefa.c`: neither extended nor forged, of which it knows nothing. */
int pair_open(struct pair **opened, unsigned depth, int extended, int one_cq, int forged)
{
	CHECK(!extended && !forged);
	struct pair *p = calloc(1, sizeof(*p));
	struct fi_info *hints = fi_allocinfo();
	CHECK(p && hints);
	p->depth = depth;
	hints->fabric_attr->prov_name = strdup("efa");
	hints->fabric_attr->name = strdup("efa-direct");
	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_MSG | FI_RMA;
	hints->mode = FI_CONTEXT2;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->tx_attr->size = depth;
	hints->rx_attr->size = depth;
	CHECK(fi_getinfo(FI_VERSION(2, 0), NULL, NULL, 0, hints, &p->info) == 0);
	CHECK(fi_fabric(p->info->fabric_attr, &p->fabric, NULL) == 0);
	CHECK(fi_domain(p->fabric, p->info, &p->domain, NULL) == 0);
	int line = open_side(p, &p->a, one_cq);
	if (!line)
		line = open_side(p, &p->b, 0);
	if (!line)
		line = reach(&p->a, &p->b);
	if (!line)
		line = reach(&p->b, &p->a);
	if (line)
		return line;
	p->remote = (uintptr_t)p->b.memory;
	p->key = fi_mr_key(p->b.mr);
	*opened = p;
	return drive();
}
