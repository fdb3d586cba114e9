/* What is sent, read and refused. */
#include "common.h"

void send_case(void)
{
	struct side a, b;
	open_pair(&a, &b);
	struct request r;
	uint32_t lengths[] = { 0, 1, 7, 64, 4097, 8928 };
	for (unsigned i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		fill(&a, 3, lengths[i], i);
		post_recv(&b, 100 + i, 16384 + i, 8928);
		post_send(&a, &b, 200 + i, 3, lengths[i]);
		received(&b, 100 + i, lengths[i]);
		sent(&a, 200 + i);
		check(&b, 16384 + i, lengths[i], i);
	}
	/* The sender, as the receiver knows it. */
	struct efadv_ah_attr ahn;
	EQ(efadv_query_ah(b.ah, &ahn, sizeof(ahn)), 0);
	post_recv(&b, 1, 0, 100);
	prepare(&r, &a, &b, 2, 0, 10);
	r.wr.opcode = IBV_WR_SEND_WITH_IMM;
	r.wr.imm_data = htobe32(0x01020304);
	post(&a, &r);
	struct ibv_wc wc = completion(b.recv_cq);
	EQ(wc.status, IBV_WC_SUCCESS);
	EQ(wc.src_qp, a.qp->qp_num);
	EQ(wc.slid, ahn.ahn);
	TRUE(wc.wc_flags & IBV_WC_WITH_IMM);
	EQ(be32toh(wc.imm_data), 0x01020304);
	sent(&a, 2);
	/* Inline: the bytes are taken at once. */
	post_recv(&b, 3, 0, 100);
	fill(&a, 0, 32, 9);
	prepare(&r, &a, &b, 4, 0, 32);
	r.wr.send_flags |= IBV_SEND_INLINE;
	r.sge[0].lkey = 0;
	post(&a, &r);
	memset(a.memory, 0, 32);
	received(&b, 3, 32);
	check(&b, 0, 32, 9);
	sent(&a, 4);
	/* From two buffers into two. */
	struct side scattered = b;
	TRUE((scattered.qp = create_qp(&b, 2)) != NULL);
	bring_up(scattered.qp, 7);
	struct ibv_sge parts[] = { { (uintptr_t)b.memory + 1000, 30, b.mr->lkey },
				   { (uintptr_t)b.memory + 1030, 200, b.mr->lkey } };
	struct ibv_recv_wr wr = { .wr_id = 5, .sg_list = parts, .num_sge = 2 }, *bad;
	EQ(ibv_post_recv(scattered.qp, &wr, &bad), 0);
	fill(&a, 500, 100, 4);
	prepare(&r, &a, &scattered, 6, 500, 70);
	r.sge[1] = (struct ibv_sge){ (uintptr_t)a.memory + 570, 30, a.mr->lkey };
	r.wr.num_sge = 2;
	post(&a, &r);
	received(&scattered, 5, 100);
	check(&b, 1000, 100, 4);
	sent(&a, 6);
	EQ(ibv_destroy_qp(scattered.qp), 0);
	close_side(&a);
	close_side(&b);
}

static void stream(struct side *a, struct side *b, int count)
{
	for (int i = 0; i < count; i++) {
		size_t at = (size_t)(i % DEPTH) * 64;
		fill(a, at, 64, i);
		post_recv(b, i, 8192 + at, 64);
		post_send(a, b, i, at, 64);
		received(b, i, 64);
		sent(a, i);
		check(b, 8192 + at, 64, i);
	}
}

void wrap_case(void)
{
	struct side a, b;
	open_pair(&a, &b);
	/* Around every ring, and around the 16 bits that doorbells count. */
	stream(&a, &b, 70000);
	/* As many at once as the queues hold. */
	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < DEPTH; i++)
			post_recv(&b, i, 8192 + i * 64, 64);
		for (int i = 0; i < DEPTH; i++)
			post_send(&a, &b, i, i * 64, 64);
		int seen = 0;
		for (int i = 0; i < DEPTH; i++) {
			EQ(completion(b.recv_cq).status, IBV_WC_SUCCESS);
			seen |= 1 << completion(a.send_cq).wr_id;
		}
		EQ(seen, (1 << DEPTH) - 1);
	}
	close_side(&a);
	close_side(&b);
}

void reset_case(void)
{
	struct side a, b;
	open_pair(&a, &b);
	for (int life = 0; life < 6; life++) {
		/* An odd number of rounds: the library's phase bit is then not where a new queue pair's is. */
		stream(&a, &b, DEPTH * (life + 1) + 3);
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
		EQ(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
		EQ(ibv_modify_qp(b.qp, &attr, IBV_QP_STATE), 0);
		bring_up(a.qp, 7);
		bring_up(b.qp, 7);
	}
	close_side(&a);
	close_side(&b);
}

static void post_read(struct side *from, struct ibv_qp *reader, struct side *to, uint64_t id, uint32_t rkey, uint32_t length)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(reader);
	ibv_wr_start(qp);
	qp->wr_id = id;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_read(qp, rkey, (uintptr_t)to->memory + 16);
	ibv_wr_set_ud_addr(qp, from->ah, to->qp->qp_num, QKEY);
	ibv_wr_set_sge(qp, from->mr->lkey, (uintptr_t)from->memory + 40000, length);
	EQ(ibv_wr_complete(qp), 0);
}

void read_case(void)
{
	struct side a, b;
	open_pair(&a, &b);
	struct ibv_qp *reader = create_reader(&a);
	TRUE(reader != NULL);
	bring_up(reader, 7);
	fill(&b, 16, 20000, 77);
	post_read(&a, reader, &b, 5, b.mr->rkey, 20000);
	struct ibv_wc wc = completion(a.send_cq);
	EQ(wc.status, IBV_WC_SUCCESS);
	EQ(wc.wr_id, 5);
	check(&a, 40000, 20000, 77);
	/* 7: a key that is none. libefa 44 has no word of its own for it. */
	post_read(&a, reader, &b, 6, b.mr->rkey ^ 1 << 20, 100);
	wc = completion(a.send_cq);
	EQ(wc.vendor_err, 7);
	/* 14: the other side has no address handle of ours. */
	EQ(ibv_destroy_ah(b.ah), 0);
	b.ah = NULL;
	post_read(&a, reader, &b, 7, b.mr->rkey, 100);
	EQ(completion(a.send_cq).vendor_err, 14);
	EQ(ibv_destroy_qp(reader), 0);
	close_side(&a);
	close_side(&b);
}

void write_case(void)
{
#ifdef NEWEST
	struct side a, b;
	open_pair(&a, &b);
	struct ibv_qp_init_attr_ex init = {
		.send_cq = a.send_cq,
		.recv_cq = a.recv_cq,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 2, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_DRIVER,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = a.pd,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
	};
	struct efadv_qp_init_attr efa = { .driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD };
	struct ibv_qp *writer = efadv_create_qp_ex(a.ctx, &init, &efa, sizeof(efa));
	TRUE(writer != NULL);
	bring_up(writer, 7);
	struct ibv_mr *exposed =
		ibv_reg_mr(b.pd, b.memory + 8191, 30001, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	TRUE(exposed != NULL);
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(writer);
	for (unsigned imm = 0; imm < 2; imm++) {
		fill(&a, 5, 30001, imm);
		post_recv(&b, 7, 0, 0);
		ibv_wr_start(qp);
		qp->wr_id = 3;
		qp->wr_flags = IBV_SEND_SIGNALED;
		if (imm)
			ibv_wr_rdma_write_imm(qp, exposed->rkey, (uintptr_t)b.memory + 8191, htobe32(0xabcd));
		else
			ibv_wr_rdma_write(qp, exposed->rkey, (uintptr_t)b.memory + 8191);
		ibv_wr_set_ud_addr(qp, a.ah, b.qp->qp_num, QKEY);
		ibv_wr_set_sge(qp, a.mr->lkey, (uintptr_t)a.memory + 5, 30001);
		EQ(ibv_wr_complete(qp), 0);
		struct ibv_wc wc = completion(a.send_cq);
		EQ(wc.status, IBV_WC_SUCCESS);
		EQ(wc.wr_id, 3);
		EQ(wc.opcode, IBV_WC_RDMA_WRITE);
		check(&b, 8191, 30001, imm);
		if (imm) {
			wc = completion(b.recv_cq);
			EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
			EQ(wc.byte_len, 30001);
			EQ(be32toh(wc.imm_data), 0xabcd);
		}
	}
	EQ(ibv_dereg_mr(exposed), 0);
	EQ(ibv_destroy_qp(writer), 0);
	close_side(&a);
	close_side(&b);
#else
	/* libefa 44 knows of none. */
	struct side s;
	open_side(&s, 0, 0);
	struct ibv_qp_init_attr_ex init = {
		.send_cq = s.send_cq,
		.recv_cq = s.recv_cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_DRIVER,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = s.pd,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
	};
	struct efadv_qp_init_attr efa = { .driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD };
	NO(efadv_create_qp_ex(s.ctx, &init, &efa, sizeof(efa)), EOPNOTSUPP);
	close_side(&s);
#endif
}

void ud_case(void)
{
	enum { HEADER = 40 };
	struct side a, b;
	open_pair(&a, &b);
	struct side *sides[] = { &a, &b };
	for (int i = 0; i < 2; i++) {
		struct side *s = sides[i];
		EQ(ibv_destroy_qp(s->qp), 0);
		struct ibv_qp_init_attr init = {
			.send_cq = s->send_cq,
			.recv_cq = s->recv_cq,
			.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
			.qp_type = IBV_QPT_UD,
		};
		TRUE((s->qp = ibv_create_qp(s->pd, &init)) != NULL);
		bring_up(s->qp, 7);
	}
	for (unsigned i = 0; i < 100; i++) {
		fill(&a, 0, 500, i);
		post_recv(&b, i, 4096, 540);
		post_send(&a, &b, i, 0, 500);
		received(&b, i, HEADER + 500);
		sent(&a, i);
		check(&b, 4096 + HEADER, 500, i);
	}
	/* No receive, another key, nobody there: the send is done all the same. */
	post_send(&a, &b, 200, 0, 10);
	sent(&a, 200);
	struct request r;
	prepare(&r, &a, &b, 201, 0, 10);
	r.wr.wr.ud.remote_qkey++;
	post_recv(&b, 7, 0, 100);
	post(&a, &r);
	sent(&a, 201);
	prepare(&r, &a, &b, 202, 0, 10);
	r.wr.wr.ud.remote_qpn = 1999;
	post(&a, &r);
	sent(&a, 202);
	/* The receive is there still. */
	post_send(&a, &b, 203, 0, 10);
	received(&b, 7, HEADER + 10);
	sent(&a, 203);
	close_side(&a);
	close_side(&b);
}

void sgid_case(void)
{
	struct side a, b;
	open_pair(&a, &b);
	struct ibv_cq_init_attr_ex init = { .cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct efadv_cq_init_attr efa = { .wc_flags = EFADV_WC_EX_WITH_SGID };
	struct ibv_cq_ex *cq = efadv_create_cq(b.ctx, &init, &efa, sizeof(efa));
	TRUE(cq != NULL);
	struct side told = b;
	told.recv_cq = ibv_cq_ex_to_cq(cq);
	TRUE((told.qp = create_qp(&told, 1)) != NULL);
	bring_up(told.qp, 7);
	for (int known = 1; known >= 0; known--) {
		post_recv(&told, 1 + known, 0, 100);
		post_send(&a, &told, 9, 0, 50);
		struct ibv_poll_cq_attr attr = { 0 };
		int found;
		while ((found = ibv_start_poll(cq, &attr)) == ENOENT)
			;
		EQ(found, 0);
		EQ(cq->status, IBV_WC_SUCCESS);
		EQ(cq->wr_id, 1 + known);
		EQ(ibv_wc_read_byte_len(cq), 50);
		EQ(ibv_wc_read_src_qp(cq), a.qp->qp_num);
		union ibv_gid gid;
		int no_gid = efadv_wc_read_sgid(efadv_cq_from_ibv_cq_ex(cq), &gid);
		/* The address is told where the handle is not. */
		EQ(!!no_gid, known);
		EQ(ibv_wc_read_slid(cq) == 0xffff, !known);
		if (!known)
			EQ(memcmp(&gid, &a.gid, sizeof(gid)), 0);
		ibv_end_poll(cq);
		sent(&a, 9);
		if (known) {
			EQ(ibv_destroy_ah(b.ah), 0);
			b.ah = NULL;
		}
	}
	EQ(ibv_destroy_qp(told.qp), 0);
	EQ(ibv_destroy_cq(told.recv_cq), 0);
	close_side(&a);
	close_side(&b);
}

void unmapped_case(void)
{
	struct side a, b;
	open_pair(&a, &b);
	/* Memory that its owner has unmapped while it was registered: what is sent from it, or into it, harms nobody. */
	munmap(a.memory + 4096, 4096);
	munmap(b.memory + 4096, 4096);
	post_recv(&b, 1, 4096, 64);
	post_send(&a, &b, 2, 0, 64);
	received(&b, 1, 64);
	sent(&a, 2);
	post_recv(&b, 3, 0, 64);
	post_send(&a, &b, 4, 4096, 64);
	received(&b, 3, 64);
	sent(&a, 4);
	fill(&a, 0, 64, 3);
	post_recv(&b, 5, 128, 64);
	post_send(&a, &b, 6, 0, 64);
	received(&b, 5, 64);
	check(&b, 128, 64, 3);
	sent(&a, 6);
	close_side(&a);
	close_side(&b);
}

static int by_time(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;
	return (left > right) - (left < right);
}

void latency_case(void)
{
	enum { COUNT = 20001 };
	static double times[COUNT];
	struct side a, b;
	open_pair(&a, &b);
	for (int i = 0; i < COUNT; i++) {
		struct timespec begin, end;
		post_recv(&b, i, 0, 64);
		clock_gettime(CLOCK_MONOTONIC, &begin);
		post_send(&a, &b, i, 0, 64);
		completion(b.recv_cq);
		completion(a.send_cq);
		clock_gettime(CLOCK_MONOTONIC, &end);
		times[i] = (end.tv_sec - begin.tv_sec) * 1e6 + (end.tv_nsec - begin.tv_nsec) * 1e-3;
	}
	qsort(times, COUNT, sizeof(*times), by_time);
	printf("figure: 64 bytes to both completions in one process: %.2f us in the median, %.2f us in the 99th percentile\n",
	       times[COUNT / 2], times[COUNT * 99 / 100]);
	close_side(&a);
	close_side(&b);
}
