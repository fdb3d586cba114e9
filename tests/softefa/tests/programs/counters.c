/* Completion counters. */
#include "common.h"

#ifdef NEWEST
#define ALL_OPS 0x3f
#define OP(name) IBV_QP_ATTACH_COMP_CNTR_OP_##name

static struct ibv_comp_cntr *create(struct side *s)
{
	struct ibv_comp_cntr_init_attr attr = { .type = IBV_COMP_CNTR_TYPE_WRS };
	struct ibv_comp_cntr *counter = ibv_create_comp_cntr(s->ctx, &attr);
	TRUE(counter != NULL);
	return counter;
}

static struct ibv_comp_cntr *create_in(struct side *s, struct efadv_memory_location done,
				       struct efadv_memory_location failed)
{
	struct ibv_comp_cntr_init_attr attr = { .type = IBV_COMP_CNTR_TYPE_WRS };
	struct efadv_comp_cntr_init_attr efa = {
		.flags = EFADV_COMP_CNTR_INIT_WITH_COMP_EXTERNAL_MEM | EFADV_COMP_CNTR_INIT_WITH_ERR_EXTERNAL_MEM,
		.comp_cntr_ext_mem = done,
		.err_cntr_ext_mem = failed,
	};
	return efadv_create_comp_cntr(s->ctx, &attr, &efa, sizeof(efa));
}

static struct efadv_memory_location at(uint64_t *place)
{
	return (struct efadv_memory_location){ .ptr = (uint8_t *)place, .type = EFADV_MEMORY_LOCATION_VA };
}

static struct efadv_memory_location in(int fd, uint64_t offset, uint64_t *place)
{
	return (struct efadv_memory_location){ .ptr = (uint8_t *)place, .type = EFADV_MEMORY_LOCATION_DMABUF,
					       .dmabuf = { .offset = offset, .fd = fd } };
}

static int attach(struct ibv_qp *qp, struct ibv_comp_cntr *counter, uint32_t ops)
{
	struct ibv_qp_attach_comp_cntr_attr attr = { .op_mask = ops };
	return ibv_qp_attach_comp_cntr(qp, counter, &attr);
}

static uint64_t done(struct ibv_comp_cntr *counter)
{
	uint64_t value = -1;
	EQ(ibv_read_comp_cntr(counter, &value), 0);
	return __atomic_load_n(&value, __ATOMIC_ACQUIRE);
}

static uint64_t failed(struct ibv_comp_cntr *counter)
{
	uint64_t value = -1;
	EQ(ibv_read_err_comp_cntr(counter, &value), 0);
	return value;
}

/* Waits for ten seconds until that many are counted, and no more. */
static void await_counts(struct ibv_comp_cntr *counter, uint64_t ends, uint64_t failures)
{
	time_t end = time(NULL) + 10;
	while ((done(counter) < ends || failed(counter) < failures) && time(NULL) < end)
		;
	EQ(done(counter), ends);
	EQ(failed(counter), failures);
}

/* A queue pair that does everything, in RESET. */
static struct ibv_qp *create_all(struct side *s)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = s->send_cq,
		.recv_cq = s->recv_cq,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 2, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_DRIVER,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = s->pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_RDMA_WRITE |
				  IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
	};
	struct efadv_qp_init_attr efa = { .driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD };
	struct ibv_qp *qp = efadv_create_qp_ex(s->ctx, &init, &efa, sizeof(efa));
	TRUE(qp != NULL);
	return qp;
}

/* Posts one operation of eight bytes and waits for its completion. */
static enum ibv_wc_status operate(struct side *from, struct side *to, enum ibv_wr_opcode op, uint32_t rkey)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(from->qp);
	uint64_t remote = (uintptr_t)to->memory;
	ibv_wr_start(qp);
	qp->wr_id = 1;
	qp->wr_flags = IBV_SEND_SIGNALED;
	switch (op) {
	case IBV_WR_RDMA_READ: ibv_wr_rdma_read(qp, rkey, remote); break;
	case IBV_WR_RDMA_WRITE: ibv_wr_rdma_write(qp, rkey, remote); break;
	case IBV_WR_RDMA_WRITE_WITH_IMM: ibv_wr_rdma_write_imm(qp, rkey, remote, 7); break;
	default: ibv_wr_send(qp); break;
	}
	ibv_wr_set_ud_addr(qp, from->ah, to->qp->qp_num, QKEY);
	ibv_wr_set_sge(qp, from->mr->lkey, (uintptr_t)from->memory, 8);
	EQ(ibv_wr_complete(qp), 0);
	return completion(from->send_cq).status;
}

/* Both sides' queue pairs anew, in RESET. */
static void replace_qps(struct side *a, struct side *b)
{
	EQ(ibv_destroy_qp(a->qp), 0);
	EQ(ibv_destroy_qp(b->qp), 0);
	a->qp = create_all(a);
	b->qp = create_all(b);
}

/* Of a device that has none. */
static void check_absence(struct side *s)
{
	struct ibv_comp_cntr_caps caps;
	EQ(ibv_query_comp_cntr_caps(s->ctx, &caps), EOPNOTSUPP);
	struct efadv_device_attr device;
	EQ(efadv_query_device(s->ctx, &device, sizeof(device)), 0);
	EQ(device.device_caps & EFADV_DEVICE_ATTR_CAPS_COMP_CNTR, 0);
	struct ibv_comp_cntr_init_attr attr = { .type = IBV_COMP_CNTR_TYPE_WRS };
	NO(ibv_create_comp_cntr(s->ctx, &attr), EOPNOTSUPP);
}

static void check_refusals(struct side *s)
{
	struct ibv_comp_cntr_caps caps = { 0 };
	EQ(ibv_query_comp_cntr_caps(s->ctx, &caps), 0);
	TRUE(caps.max_counters >= 16);
	TRUE(caps.max_value >= UINT32_MAX);
	EQ(caps.supported_qp_attach_ops, ALL_OPS);
	struct efadv_device_attr device;
	EQ(efadv_query_device(s->ctx, &device, sizeof(device)), 0);
	TRUE(device.device_caps & EFADV_DEVICE_ATTR_CAPS_COMP_CNTR);

	struct ibv_comp_cntr *one = create(s), *two = create(s);
	EQ(done(one), 0);
	EQ(attach(s->qp, one, OP(SEND)), EINVAL); /* it is in RTS */
	struct ibv_qp *qp = create_all(s);
	EQ(attach(qp, one, 0), EINVAL);
	EQ(attach(qp, one, OP(SEND) | OP(RDMA_READ)), 0);
	EQ(attach(qp, two, OP(RDMA_READ) | OP(RECV)), EBUSY);
	EQ(attach(qp, one, OP(RDMA_READ)), EBUSY);
	EQ(attach(qp, two, OP(RECV)), 0);
	EQ(attach(qp, one, OP(REMOTE_RDMA_WRITE)), 0);
	EQ(ibv_destroy_comp_cntr(one), EBUSY);
	EQ(ibv_destroy_comp_cntr(two), EBUSY);
	EQ(ibv_destroy_qp(qp), 0);
	EQ(ibv_destroy_comp_cntr(one), 0);
	EQ(ibv_destroy_comp_cntr(two), 0);

	static uint64_t place[2];
	NO(create_in(s, at(place), at((uint64_t *)((char *)place + 4))), EINVAL);
	NO(create_in(s, at(place), at((uint64_t *)64)), EFAULT);
	NO(create_in(s, at(place), in(-1, 0, NULL)), EBADF);
	int fd = memfd_create("counter", 0);
	TRUE(fd >= 0);
	NO(create_in(s, at(place), in(fd, 0, NULL)), EINVAL); /* it has no bytes */
	close(fd);
	struct ibv_comp_cntr_init_attr bytes = { .type = IBV_COMP_CNTR_TYPE_BYTES };
	NO(ibv_create_comp_cntr(s->ctx, &bytes), EOPNOTSUPP);
}

/* The program sets them, in its own memory or in that of a file. */
static void check_values(struct side *s)
{
	struct ibv_comp_cntr *counter = create(s);
	EQ(ibv_set_comp_cntr(counter, 1ull << 40), 0);
	EQ(ibv_inc_comp_cntr(counter, 5), 0);
	EQ(ibv_inc_err_comp_cntr(counter, 7), 0);
	await_counts(counter, (1ull << 40) + 5, 7);
	EQ(ibv_set_err_comp_cntr(counter, 0), 0);
	await_counts(counter, (1ull << 40) + 5, 0);
	EQ(ibv_destroy_comp_cntr(counter), 0);

	int fd = memfd_create("counter", 0);
	TRUE(fd >= 0);
	EQ(ftruncate(fd, 8192), 0);
	uint64_t *file = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	TRUE(file != MAP_FAILED);
	uint64_t place = 99;
	file[513] = 99;
	counter = create_in(s, in(fd, 4096 + 8, file + 513), at(&place));
	TRUE(counter != NULL);
	await_counts(counter, 0, 0);
	EQ(ibv_set_comp_cntr(counter, 3), 0);
	EQ(ibv_set_err_comp_cntr(counter, 4), 0);
	await_counts(counter, 3, 4);
	EQ(__atomic_load_n(file + 513, __ATOMIC_ACQUIRE), 3);
	EQ(__atomic_load_n(&place, __ATOMIC_ACQUIRE), 4);
	EQ(ibv_destroy_comp_cntr(counter), 0);
	munmap(file, 8192);
	close(fd);
}

static void check_operations(struct side *a, struct side *b)
{
	replace_qps(a, b);
	static const uint32_t ops[] = { OP(SEND), OP(RECV), OP(RDMA_READ), OP(REMOTE_RDMA_READ), OP(RDMA_WRITE),
					OP(REMOTE_RDMA_WRITE) };
	enum { KINDS = sizeof(ops) / sizeof(*ops) };
	struct ibv_comp_cntr *of_a[KINDS], *of_b[KINDS];
	for (int i = 0; i < KINDS; i++) {
		EQ(attach(a->qp, of_a[i] = create(a), ops[i]), 0);
		EQ(attach(b->qp, of_b[i] = create(b), ops[i]), 0);
	}
	bring_up(a->qp, 7);
	bring_up(b->qp, 7);
	struct ibv_mr *shared = ibv_reg_mr(b->pd, b->memory, MEMORY,
					   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	TRUE(shared != NULL);
	for (int i = 0; i < 4; i++)
		post_recv(b, i, 0, 64);
	for (int i = 0; i < 3; i++)
		EQ(operate(a, b, IBV_WR_SEND, 0), IBV_WC_SUCCESS);
	EQ(operate(a, b, IBV_WR_RDMA_READ, shared->rkey), IBV_WC_SUCCESS);
	EQ(operate(a, b, IBV_WR_RDMA_WRITE, shared->rkey), IBV_WC_SUCCESS);
	EQ(operate(a, b, IBV_WR_RDMA_WRITE_WITH_IMM, shared->rkey), IBV_WC_SUCCESS);
	/* A key that is none is counted where it was asked for. */
	TRUE(operate(a, b, IBV_WR_RDMA_READ, shared->rkey ^ 1 << 20) != IBV_WC_SUCCESS);
	TRUE(operate(a, b, IBV_WR_RDMA_WRITE, shared->rkey ^ 1 << 20) != IBV_WC_SUCCESS);
	/* What is flushed failed too. */
	post_recv(b, 9, 0, 64);
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	EQ(ibv_modify_qp(b->qp, &error, IBV_QP_STATE), 0);
	for (int i = 0; i < 5; i++)
		EQ(completion(b->recv_cq).status, i < 4 ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR);
	static const uint64_t at_a[][2] = { { 3, 0 }, { 0, 0 }, { 1, 1 }, { 0, 0 }, { 2, 1 }, { 0, 0 } };
	static const uint64_t at_b[][2] = { { 0, 0 }, { 4, 1 }, { 0, 0 }, { 1, 0 }, { 0, 0 }, { 2, 0 } };
	for (int i = 0; i < KINDS; i++) {
		await_counts(of_a[i], at_a[i][0], at_a[i][1]);
		await_counts(of_b[i], at_b[i][0], at_b[i][1]);
	}
	EQ(ibv_dereg_mr(shared), 0);
	replace_qps(a, b);
	for (int i = 0; i < KINDS; i++) {
		EQ(ibv_destroy_comp_cntr(of_a[i]), 0);
		EQ(ibv_destroy_comp_cntr(of_b[i]), 0);
	}
}

#define MESSAGES 20000

static uint64_t *watched;
static int watching;

/* What is counted is never less than it was, and never more than there can be: no half of an update is seen. */
static void *watch(void *unused)
{
	uint64_t last = 0;
	while (__atomic_load_n(&watching, __ATOMIC_ACQUIRE)) {
		uint64_t now = __atomic_load_n(watched, __ATOMIC_ACQUIRE);
		TRUE(now >= last);
		TRUE(now <= 2 * MESSAGES);
		last = now;
		sched_yield();
	}
	return unused;
}

/* One counter for two queue pairs, read by a thread all the while. */
static void check_traffic(struct side *a, struct side *b)
{
	replace_qps(a, b);
	uint64_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	TRUE(page != MAP_FAILED);
	struct ibv_comp_cntr *counter = create_in(a, at(page), at(page + 1)), *received = create(b);
	TRUE(counter != NULL);
	struct ibv_qp *other = create_all(a);
	EQ(attach(a->qp, counter, OP(SEND)), 0);
	EQ(attach(other, counter, OP(SEND)), 0);
	EQ(attach(b->qp, received, OP(RECV)), 0);
	bring_up(a->qp, 7);
	bring_up(other, 7);
	bring_up(b->qp, 7);
	pthread_t thread;
	watched = page;
	__atomic_store_n(&watching, 1, __ATOMIC_RELEASE);
	EQ(pthread_create(&thread, NULL, watch, NULL), 0);
	for (int sent = 0; sent < MESSAGES; sent += DEPTH) {
		struct ibv_qp *first = a->qp;
		for (int i = 0; i < DEPTH; i++)
			post_recv(b, i, 0, 64);
		for (int i = 0; i < DEPTH; i++) {
			a->qp = i % 2 ? other : first;
			post_send(a, b, i, 0, 8);
		}
		a->qp = first;
		for (int i = 0; i < DEPTH; i++) {
			EQ(completion(a->send_cq).status, IBV_WC_SUCCESS);
			EQ(completion(b->recv_cq).status, IBV_WC_SUCCESS);
		}
	}
	await_counts(counter, MESSAGES, 0);
	await_counts(received, MESSAGES, 0);
	__atomic_store_n(&watching, 0, __ATOMIC_RELEASE);
	EQ(pthread_join(thread, NULL), 0);
	/* Memory that is gone takes nothing, and harms nobody. */
	munmap(page, 4096);
	post_recv(b, 1, 0, 64);
	post_send(a, b, 1, 0, 8);
	EQ(completion(a->send_cq).status, IBV_WC_SUCCESS);
	EQ(completion(b->recv_cq).status, IBV_WC_SUCCESS);
	await_counts(received, MESSAGES + 1, 0);
	EQ(ibv_destroy_qp(other), 0);
	replace_qps(a, b);
	EQ(ibv_destroy_comp_cntr(counter), 0);
	EQ(ibv_destroy_comp_cntr(received), 0);
}

void counters_case(void)
{
	struct side a, b;
	open_pair(&a, &b);
	if (expects("SOFTEFA_FEATURES", "none")) {
		check_absence(&a);
	} else {
		check_refusals(&a);
		check_values(&a);
		check_operations(&a, &b);
		check_traffic(&a, &b);
	}
	close_side(&a);
	close_side(&b);
}
#else
void counters_case(void)
{
	SKIP("rdma-core 44 has no completion counters");
}
#endif
