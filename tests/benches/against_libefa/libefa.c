/*
 * The same work by libibverbs and libefa, as a C program does it. Each function whose name begins with `counted_` is what
 * is counted and timed: it takes what a program has (a buffer, a number), and gives what it wants to know.
 *
 * Two queue pairs of one device, `a` that is measured and `b` that is reached; whatever `b` does is not measured.
 */
#include <errno.h>
#include <infiniband/efadv.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define QKEY 0x11223344u
#define BYTES 64
#define MANY 16
#define COUNTED __attribute__((noinline, noclone)) int

enum operation { SEND, WRITE, READ, RECV };

/* What a program keeps of a buffer. */
struct buffer {
	uint64_t addr;
	uint32_t lkey;
};

/* What a program learns of a completion: five fields, with its request and its status. */
struct done {
	uint64_t wr_id;
	enum ibv_wc_status status;
	enum ibv_wc_opcode opcode;
	uint32_t byte_len, qp_num, src_qp, flags;
};

struct side {
	struct ibv_qp *qp;
	struct ibv_qp_ex *qpx;
	struct ibv_cq *send_cq, *recv_cq;
	struct buffer *buffers;
};

struct pair {
	struct ibv_context *ctx;
	struct ibv_pd *plain, *pd;
	struct side a, b;
	struct ibv_ah *ah;
	struct ibv_mr *mr;
	uint32_t qpn, rkey;
	uint64_t remote;
	unsigned depth;
	int extended;
	struct done done[MANY];
	/* Where the device's queues are, if completions are written here in its stead, and what was done so far. */
	int forged;
	struct efadv_wq_attr sq, rq;
	struct efadv_cq_attr send_ring, recv_ring;
	uint32_t sends, receives, send_completions, recv_completions;
};

/* --- extended: ibv_wr_*, ibv_start_poll and the rest of it, in a thread domain */

static inline void put(struct pair *p, struct ibv_qp_ex *qp, enum operation op, unsigned nth)
{
	struct buffer *b = &p->a.buffers[nth];
	qp->wr_id = nth;
	qp->wr_flags = IBV_SEND_SIGNALED;
	if (op == SEND)
		ibv_wr_send(qp);
	else if (op == WRITE)
		ibv_wr_rdma_write(qp, p->rkey, p->remote);
	else
		ibv_wr_rdma_read(qp, p->rkey, p->remote);
	ibv_wr_set_ud_addr(qp, p->ah, p->qpn, QKEY);
	ibv_wr_set_sge(qp, b->lkey, b->addr, BYTES);
}

static inline int put_all(struct pair *p, enum operation op, unsigned first, unsigned count)
{
	struct ibv_qp_ex *qp = p->a.qpx;
	ibv_wr_start(qp);
	for (unsigned nth = first; nth < first + count; nth++)
		put(p, qp, op, nth);
	return ibv_wr_complete(qp);
}

COUNTED counted_extended_send(struct pair *p, unsigned nth) { return put_all(p, SEND, nth, 1); }
COUNTED counted_extended_sends(struct pair *p, unsigned nth) { return put_all(p, SEND, nth, MANY); }
COUNTED counted_extended_write(struct pair *p, unsigned nth) { return put_all(p, WRITE, nth, 1); }
COUNTED counted_extended_writes(struct pair *p, unsigned nth) { return put_all(p, WRITE, nth, MANY); }
COUNTED counted_extended_read(struct pair *p, unsigned nth) { return put_all(p, READ, nth, 1); }
COUNTED counted_extended_reads(struct pair *p, unsigned nth) { return put_all(p, READ, nth, MANY); }

static inline void look(struct ibv_cq_ex *cq, struct done *done)
{
	done->wr_id = cq->wr_id;
	done->status = cq->status;
	done->opcode = ibv_wc_read_opcode(cq);
	done->byte_len = ibv_wc_read_byte_len(cq);
	done->qp_num = ibv_wc_read_qp_num(cq);
	done->src_qp = ibv_wc_read_src_qp(cq);
	done->flags = ibv_wc_read_wc_flags(cq);
}

/* How many of so many there were. */
static inline int look_at_all(struct ibv_cq *plain, struct done *done, int most)
{
	struct ibv_cq_ex *cq = (struct ibv_cq_ex *)plain;
	struct ibv_poll_cq_attr attr = { 0 };
	if (ibv_start_poll(cq, &attr))
		return 0;
	int found = 0;
	do
		look(cq, &done[found]);
	while (++found < most && ibv_next_poll(cq) == 0);
	ibv_end_poll(cq);
	return found;
}

COUNTED counted_extended_event(struct ibv_cq *cq, struct done *done) { return look_at_all(cq, done, 1); }
COUNTED counted_extended_events(struct ibv_cq *cq, struct done *done) { return look_at_all(cq, done, MANY); }

/* --- classic: ibv_post_send, ibv_poll_cq */

static inline int post_sends(struct pair *p, unsigned first, unsigned count)
{
	struct ibv_send_wr wrs[MANY], *bad;
	struct ibv_sge sges[MANY];
	for (unsigned i = 0; i < count; i++) {
		struct buffer *b = &p->a.buffers[first + i];
		sges[i] = (struct ibv_sge){ b->addr, BYTES, b->lkey };
		struct ibv_send_wr *wr = &wrs[i];
		/* All that libefa reads of it. */
		wr->wr_id = first + i;
		wr->next = i + 1 < count ? &wrs[i + 1] : NULL;
		wr->sg_list = &sges[i];
		wr->num_sge = 1;
		wr->opcode = IBV_WR_SEND;
		wr->send_flags = IBV_SEND_SIGNALED;
		wr->wr.ud.ah = p->ah;
		wr->wr.ud.remote_qpn = p->qpn;
		wr->wr.ud.remote_qkey = QKEY;
	}
	return ibv_post_send(p->a.qp, wrs, &bad);
}

COUNTED counted_classic_send(struct pair *p, unsigned nth) { return post_sends(p, nth, 1); }
COUNTED counted_classic_sends(struct pair *p, unsigned nth) { return post_sends(p, nth, MANY); }

static inline int poll_all(struct ibv_cq *cq, struct done *done, int most)
{
	struct ibv_wc wcs[MANY];
	int found = ibv_poll_cq(cq, most, wcs);
	for (int i = 0; i < found; i++) {
		struct ibv_wc *wc = &wcs[i];
		done[i] = (struct done){ wc->wr_id,  wc->status, wc->opcode,  wc->byte_len,
					 wc->qp_num, wc->src_qp, wc->wc_flags };
	}
	return found;
}

COUNTED counted_classic_event(struct ibv_cq *cq, struct done *done) { return poll_all(cq, done, 1); }
COUNTED counted_classic_events(struct ibv_cq *cq, struct done *done) { return poll_all(cq, done, MANY); }

/* --- both */

static inline int post_recvs(struct side *s, unsigned first, unsigned count)
{
	struct ibv_recv_wr wrs[MANY], *bad;
	struct ibv_sge sges[MANY];
	for (unsigned i = 0; i < count; i++) {
		struct buffer *b = &s->buffers[first + i];
		sges[i] = (struct ibv_sge){ b->addr, BYTES, b->lkey };
		wrs[i] = (struct ibv_recv_wr){ first + i, i + 1 < count ? &wrs[i + 1] : NULL, &sges[i], 1 };
	}
	return ibv_post_recv(s->qp, wrs, &bad);
}

COUNTED counted_recv(struct side *s, unsigned nth) { return post_recvs(s, nth, 1); }
COUNTED counted_recvs(struct side *s, unsigned nth) { return post_recvs(s, nth, MANY); }

/* --- what calls them. Each returns 0, or a line of this file where something went wrong. */

#define CHECK(condition)                                                                                               \
	do                                                                                                             \
		if (!(condition))                                                                                      \
			return __LINE__;                                                                               \
	while (0)

typedef int posts(struct pair *, unsigned);

/* All of a queue's depth, one by one or in sixteens. */
int pair_post(struct pair *p, enum operation op, unsigned batch)
{
	static posts *const calls[2][3][2] = {
		{ { counted_classic_send, counted_classic_sends } },
		{ { counted_extended_send, counted_extended_sends },
		  { counted_extended_write, counted_extended_writes },
		  { counted_extended_read, counted_extended_reads } },
	};
	if (op == RECV) {
		for (unsigned nth = 0; nth < p->depth; nth += batch)
			CHECK((batch > 1 ? counted_recvs : counted_recv)(&p->a, nth) == 0);
		return 0;
	}
	posts *post = calls[p->extended][op][batch > 1];
	CHECK(post);
	for (unsigned nth = 0; nth < p->depth; nth += batch)
		CHECK(post(p, nth) == 0);
	return 0;
}

static int complete(struct pair *p, struct ibv_cq *cq, unsigned batch)
{
	for (unsigned nth = 0; nth < p->depth; nth += batch) {
		int found;
		if (p->extended)
			found = (batch > 1 ? counted_extended_events : counted_extended_event)(cq, p->done);
		else
			found = (batch > 1 ? counted_classic_events : counted_classic_event)(cq, p->done);
		CHECK(found == (int)batch && p->done[0].status == IBV_WC_SUCCESS);
		CHECK(p->done[batch - 1].status == IBV_WC_SUCCESS);
	}
	return 0;
}

/* All that has completed at `a`. */
int pair_complete(struct pair *p, enum operation op, unsigned batch)
{
	return complete(p, op == RECV ? p->a.recv_cq : p->a.send_cq, batch);
}

/* As many looks at an empty queue. */
int pair_empty(struct pair *p)
{
	for (unsigned nth = 0; nth < p->depth; nth++)
		CHECK((p->extended ? counted_extended_event : counted_classic_event)(p->a.send_cq, p->done) == 0);
	return 0;
}

/* The software device's own entry, where it is one. */
extern void softefa_drive(void) __attribute__((weak));

int drive(void)
{
	CHECK(softefa_drive);
	softefa_drive();
	return 0;
}

/* A completion queue's memory, which a program only reads, for completions that are written here. */
int unlock(void *ring, size_t bytes)
{
	uintptr_t first = (uintptr_t)ring & ~4095ul, end = ((uintptr_t)ring + bytes + 4095) & ~4095ul;
	return mprotect((void *)first, end - first, PROT_READ | PROT_WRITE);
}

/* Completes what was posted, each of 8 bytes, as the device would. */
static int forge(struct pair *p, enum operation op)
{
	int is_recv = op == RECV, one = p->a.send_cq == p->a.recv_cq;
	struct efadv_cq_attr *ring = is_recv ? &p->recv_ring : &p->send_ring;
	uint32_t *written = is_recv && !one ? &p->recv_completions : &p->send_completions;
	for (unsigned nth = 0; nth < p->depth; nth++, (*written)++) {
		uint16_t id;
		uint8_t operation = 0;
		if (is_recv) {
			uint8_t *at = p->rq.buffer + p->receives++ % p->rq.num_entries * p->rq.entry_size;
			memcpy(&id, at + 8, 2);
		} else {
			uint8_t *at = p->sq.buffer + p->sends++ % p->sq.num_entries * p->sq.entry_size;
			memcpy(&id, at, 2);
			operation = at[2] & 0xF;
		}
		uint8_t phase = *written / ring->num_entries % 2 == 0;
		uint64_t head = id | (uint64_t)(phase | (is_recv ? 2 : 1) << 1 | operation << 4) << 24 |
				(uint64_t)p->a.qp->qp_num << 32 | 8ull << 48;
		uint64_t *at = (uint64_t *)(ring->buffer + *written % ring->num_entries * ring->entry_size);
		__atomic_store_n(at, head, __ATOMIC_RELEASE);
	}
	return 0;
}

/* What `b` does before: receives for messages from `a`. */
int pair_prepare(struct pair *p, enum operation op)
{
	for (unsigned nth = 0; op == SEND && !p->forged && nth < p->depth; nth += MANY)
		CHECK(post_recvs(&p->b, nth, MANY) == 0);
	return 0;
}

/* The device does what was posted, and what `b` sends to `a`. */
int pair_device(struct pair *p, enum operation op)
{
	if (p->forged)
		return forge(p, op);
	for (unsigned nth = 0; op == RECV && nth < p->depth; nth++) {
		struct buffer *b = &p->b.buffers[nth];
		struct ibv_sge sge = { b->addr, BYTES, b->lkey };
		struct ibv_send_wr wr = { .wr_id = nth, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
					  .send_flags = IBV_SEND_SIGNALED }, *bad;
		wr.wr.ud.ah = p->ah;
		wr.wr.ud.remote_qpn = p->a.qp->qp_num;
		wr.wr.ud.remote_qkey = QKEY;
		CHECK(ibv_post_send(p->b.qp, &wr, &bad) == 0);
	}
	return drive();
}

/* After it, `b` takes its completions. */
int pair_clean_up(struct pair *p, enum operation op)
{
	struct ibv_wc wc;
	for (unsigned nth = 0; !p->forged && (op == SEND || op == RECV) && nth < p->depth; nth++)
		CHECK(ibv_poll_cq(op == SEND ? p->b.recv_cq : p->b.send_cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	return 0;
}

static struct ibv_cq *make_cq(struct pair *p, int extended, unsigned entries)
{
	if (!extended)
		return ibv_create_cq(p->ctx, entries, NULL, NULL, 0);
	struct ibv_cq_init_attr_ex attr = {
		.cqe = entries,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
		.parent_domain = p->pd,
		.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_SRC_QP,
	};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(p->ctx, &attr);
	return cq ? ibv_cq_ex_to_cq(cq) : NULL;
}

static int open_side(struct pair *p, struct side *s, int extended, int one_cq, char *memory, struct ibv_mr *mr)
{
	CHECK(s->send_cq = make_cq(p, extended, 2 * p->depth));
	CHECK(s->recv_cq = one_cq ? s->send_cq : make_cq(p, extended, 2 * p->depth));
	struct ibv_qp_init_attr_ex init = {
		.send_cq = s->send_cq,
		.recv_cq = s->recv_cq,
		.cap = { .max_send_wr = p->depth, .max_recv_wr = p->depth, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_DRIVER,
		.sq_sig_all = 1,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = p->pd,
	};
	if (extended) {
		init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_RDMA_WRITE;
	}
	struct efadv_qp_init_attr efa = { .driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD };
	CHECK(s->qp = efadv_create_qp_ex(p->ctx, &init, &efa, sizeof(efa)));
	s->qpx = extended ? ibv_qp_to_qp_ex(s->qp) : NULL;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };
	CHECK(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
	attr.qp_state = IBV_QPS_RTR;
	CHECK(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE) == 0);
	attr.qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
	CHECK(s->buffers = calloc(p->depth, sizeof(*s->buffers)));
	for (unsigned nth = 0; nth < p->depth; nth++)
		s->buffers[nth] = (struct buffer){ (uintptr_t)memory + nth * BYTES, mr->lkey };
	return 0;
}

/* Opens the first device, which does what is posted when it is driven, or nothing if completions are to be forged. What is made stays until the process ends. */
int pair_open(struct pair **opened, unsigned depth, int extended, int one_cq, int forged)
{
	struct pair *p = calloc(1, sizeof(*p));
	CHECK(p);
	p->depth = depth;
	p->extended = extended;
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(list && count > 0);
	CHECK(p->ctx = ibv_open_device(list[0]));
	ibv_free_device_list(list);
	CHECK(p->plain = p->pd = ibv_alloc_pd(p->ctx));
	if (extended) {
		/* One thread alone uses all of it: the interface's fastest form, without its locks. */
		struct ibv_td_init_attr of = { 0 };
		struct ibv_td *thread = ibv_alloc_td(p->ctx, &of);
		CHECK(thread);
		struct ibv_parent_domain_init_attr parent = { .pd = p->plain, .td = thread };
		CHECK(p->pd = ibv_alloc_parent_domain(p->ctx, &parent));
	}
	size_t each = (size_t)depth * BYTES;
	char *memory = aligned_alloc(4096, 4 * each);
	CHECK(memory);
	memset(memory, 7, 4 * each);
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	CHECK(p->mr = ibv_reg_mr(p->plain, memory, 4 * each, access));
	int line = open_side(p, &p->a, extended, one_cq, memory, p->mr);
	if (line)
		return line;
	line = open_side(p, &p->b, 0, 0, memory + each, p->mr);
	if (line)
		return line;
	union ibv_gid gid;
	CHECK(ibv_query_gid(p->ctx, 1, 0, &gid) == 0);
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh.dgid = gid };
	CHECK(p->ah = ibv_create_ah(p->plain, &to));
	p->qpn = p->b.qp->qp_num;
	p->rkey = p->mr->rkey;
	p->remote = (uintptr_t)memory + 2 * each;
	*opened = p;
	p->forged = forged;
	for (int recv = 0; recv < 2 && forged; recv++) {
		struct efadv_cq_attr *ring = recv ? &p->recv_ring : &p->send_ring;
		CHECK(efadv_query_cq(recv ? p->a.recv_cq : p->a.send_cq, ring, sizeof(*ring)) == 0);
		CHECK(unlock(ring->buffer, (size_t)ring->num_entries * ring->entry_size) == 0);
	}
	CHECK(!forged || efadv_query_qp_wqs(p->a.qp, &p->sq, &p->rq, sizeof(p->sq)) == 0);
	/* From here on the device does nothing by itself. */
	return drive();
}
