/* Wide send entries, request ids of 64 bits, receives of two buffers, and limits of send queues. */
#include "raw.h"

/* A message into a receive of two buffers, cut at every place that matters. */
void scatter_case(void)
{
	struct side a, b;
	open_pair(&a, &b);
	struct side scattered = b;
	TRUE((scattered.qp = create_qp(&b, 2)) != NULL);
	bring_up(scattered.qp, 7);
	struct ibv_recv_wr *bad;
	uint32_t parts[][2] = { { 1, 299 }, { 299, 1 }, { 100, 200 }, { 300, 0 }, { 0, 300 }, { 300, 7 }, { 4096, 300 } };
	enum { PARTS = sizeof(parts) / sizeof(*parts) };
	/* More than twice around the ring of descriptors. */
	for (unsigned i = 0; i < 5 * DEPTH; i++) {
		uint32_t *part = parts[i % PARTS], length = i % 301;
		size_t at[] = { 8192 + i, 24576 + 3 * i };
		struct ibv_sge sge[] = { { (uintptr_t)b.memory + at[0], part[0], b.mr->lkey },
					 { (uintptr_t)b.memory + at[1], part[1], b.mr->lkey } };
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = sge, .num_sge = 2 };
		memset(b.memory + at[0], 0x55, part[0] + 1);
		memset(b.memory + at[1], 0x55, part[1] + 1);
		EQ(ibv_post_recv(scattered.qp, &wr, &bad), 0);
		fill(&a, 64, length, i);
		post_send(&a, &scattered, i, 64, length);
		received(&scattered, i, length);
		sent(&a, i);
		uint32_t first = length < part[0] ? length : part[0];
		for (uint32_t n = 0; n < length; n++)
			EQ(n < first ? b.memory[at[0] + n] : b.memory[at[1] + n - first], a.memory[64 + n]);
		EQ(b.memory[at[0] + first], 0x55);
		EQ(b.memory[at[1] + length - first], 0x55);
	}
	/* One buffer where there may be two; and one byte too few in both. */
	struct ibv_sge one = { (uintptr_t)b.memory, 100, b.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &one, .num_sge = 1 };
	EQ(ibv_post_recv(scattered.qp, &wr, &bad), 0);
	post_send(&a, &scattered, 2, 64, 100);
	received(&scattered, 1, 100);
	sent(&a, 2);
	struct ibv_sge two[] = { { (uintptr_t)b.memory, 50, b.mr->lkey }, { (uintptr_t)b.memory + 64, 49, b.mr->lkey } };
	wr = (struct ibv_recv_wr){ .wr_id = 3, .sg_list = two, .num_sge = 2 };
	EQ(ibv_post_recv(scattered.qp, &wr, &bad), 0);
	post_send(&a, &scattered, 4, 64, 100);
	EQ(completion(b.recv_cq).status, IBV_WC_LOC_LEN_ERR);
	EQ(completion(a.send_cq).vendor_err, 11);
	EQ(ibv_destroy_qp(scattered.qp), 0);
	close_side(&a);
	close_side(&b);
}

#ifdef NEWEST
static struct ibv_qp *create_wide(struct side *s, uint32_t max_inline, uint16_t flags)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = s->send_cq,
		.recv_cq = s->recv_cq,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 2, .max_recv_sge = 1,
			 .max_inline_data = max_inline },
		.qp_type = IBV_QPT_DRIVER,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = s->pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
				  IBV_QP_EX_WITH_RDMA_READ,
	};
	struct efadv_qp_init_attr efa = { .driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD, .flags = flags };
	struct ibv_qp *qp = efadv_create_qp_ex(s->ctx, &init, &efa, sizeof(efa));
	if (qp)
		bring_up(qp, 7);
	return qp;
}
#endif

void wide_case(void)
{
#ifdef NEWEST
	struct side a, b;
	open_pair(&a, &b);
	struct efadv_device_attr attr;
	EQ(efadv_query_device(a.ctx, &attr, sizeof(attr)), 0);
	if (getenv("SOFTEFA_FEATURES") && !expects("SOFTEFA_FEATURES", "wide")) {
		EQ(attr.inline_buf_size_ex, 32);
		NO(create_wide(&a, 33, 0), EINVAL);
		NO(create_wide(&a, 32, EFADV_QP_FLAGS_INLINE_WRITE), EOPNOTSUPP);
		close_side(&a);
		close_side(&b);
		return;
	}
	EQ(attr.inline_buf_size_ex, 80);
	NO(create_wide(&a, 81, 0), EINVAL);
	struct efadv_sq_depth_attr depth = { .max_send_sge = 2, .max_inline_data = 80 };
	EQ(efadv_get_max_sq_depth(a.ctx, &depth, sizeof(depth)), 2048);
	struct side wide = a;
	TRUE((wide.qp = create_wide(&a, 80, EFADV_QP_FLAGS_INLINE_WRITE)) != NULL);
	EQ(send_ring(wide.qp).entry_size, 128);
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(wide.qp);
	struct ibv_mr *exposed = ibv_reg_mr(b.pd, b.memory, MEMORY, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	TRUE(exposed != NULL);
	for (unsigned i = 0; i < 3 * 81; i++) {
		uint32_t length = i % 81;
		size_t at = 4096 + i;
		b.memory[at + length] = 0x55;
		/* A write, a write with immediate, a SEND: each inline, and the bytes are taken at once. */
		fill(&a, 3, length, i);
		if (i % 3)
			post_recv(&b, i, at, 80);
		ibv_wr_start(qp);
		qp->wr_id = i;
		qp->wr_flags = IBV_SEND_SIGNALED;
		if (i % 3 == 0)
			ibv_wr_rdma_write(qp, exposed->rkey, (uintptr_t)b.memory + at);
		else if (i % 3 == 1)
			ibv_wr_rdma_write_imm(qp, exposed->rkey, (uintptr_t)b.memory + at, htobe32(i));
		else
			ibv_wr_send(qp);
		ibv_wr_set_ud_addr(qp, a.ah, b.qp->qp_num, QKEY);
		ibv_wr_set_inline_data(qp, a.memory + 3, length);
		EQ(ibv_wr_complete(qp), 0);
		memset(a.memory + 3, 0, length);
		struct ibv_wc wc = completion(a.send_cq);
		EQ(wc.status, IBV_WC_SUCCESS);
		EQ(wc.wr_id, i);
		EQ(wc.opcode, i % 3 < 2 ? IBV_WC_RDMA_WRITE : IBV_WC_SEND);
		check(&b, at, length, i);
		EQ(b.memory[at + length], 0x55);
		if (i % 3) {
			wc = completion(b.recv_cq);
			EQ(wc.opcode, i % 3 == 1 ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
			EQ(wc.byte_len, length);
		}
	}
	/* Buffers in wide entries: a SEND from two, a read. */
	struct request r;
	post_recv(&b, 1, 0, 100);
	fill(&a, 200, 100, 9);
	prepare(&r, &wide, &b, 2, 200, 60);
	r.sge[1] = (struct ibv_sge){ (uintptr_t)a.memory + 260, 40, a.mr->lkey };
	r.wr.num_sge = 2;
	post(&wide, &r);
	received(&b, 1, 100);
	sent(&a, 2);
	check(&b, 0, 100, 9);
	fill(&b, 16384, 20000, 7);
	ibv_wr_start(qp);
	qp->wr_id = 5;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_read(qp, b.mr->rkey, (uintptr_t)b.memory + 16384);
	ibv_wr_set_ud_addr(qp, a.ah, b.qp->qp_num, QKEY);
	ibv_wr_set_sge(qp, a.mr->lkey, (uintptr_t)a.memory + 1000, 20000);
	EQ(ibv_wr_complete(qp), 0);
	EQ(completion(a.send_cq).status, IBV_WC_SUCCESS);
	check(&a, 1000, 20000, 7);
	/* 7: an inline write where nothing is to be written. */
	ibv_wr_start(qp);
	qp->wr_id = 6;
	ibv_wr_rdma_write(qp, exposed->rkey, (uintptr_t)b.memory + MEMORY - 4);
	ibv_wr_set_ud_addr(qp, a.ah, b.qp->qp_num, QKEY);
	ibv_wr_set_inline_data(qp, a.memory, 8);
	EQ(ibv_wr_complete(qp), 0);
	EQ(completion(a.send_cq).vendor_err, 7);
	EQ(ibv_destroy_qp(wide.qp), 0);
	EQ(ibv_dereg_mr(exposed), 0);
	close_side(&a);
	close_side(&b);
#else
	SKIP("libefa 44 has send entries of 64 bytes alone");
#endif
}

/* Request ids as completions repeat them: all 64 bits in bytes 0..2 and 6..12, or 16. */
void ids_case(void)
{
	uint64_t ids[] = { 1, 0x1122334455667788, UINT64_MAX, 0xffff0000, 1ull << 63 };
	enum { IDS = sizeof(ids) / sizeof(*ids) };
	struct side a, b;
	open_pair(&a, &b);
#ifdef NEWEST
	int wide = expects("SOFTEFA_FEATURES", "id64");
	struct efadv_wq_attr sq = { 0 }, rq = { 0 };
	EQ(efadv_query_qp_wqs(a.qp, &sq, &rq, sizeof(sq)), 0);
	EQ(!!(sq.caps & EFADV_WQ_CAPS_64_BIT_REQ_ID), wide);
	struct ring cq = cq_ring(a.send_cq);
#endif
	for (int kind = 0; kind < 3; kind++)
		for (int i = 0; i < IDS; i++) {
			/* One that arrives, one that is refused, and one that is flushed. */
			struct request r;
			prepare(&r, &a, &b, ids[i], 0, 8);
			if (kind == 0)
				post_recv(&b, ids[i], 0, 8);
			if (kind == 1)
				r.wr.wr.ud.remote_qkey++;
			post(&a, &r);
			struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
			if (kind == 2)
				EQ(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
			struct ibv_wc wc = completion(a.send_cq);
			EQ(wc.wr_id, ids[i]);
			EQ(wc.status, kind == 0 ? IBV_WC_SUCCESS : kind == 1 ? IBV_WC_REM_INV_RD_REQ_ERR : IBV_WC_WR_FLUSH_ERR);
			if (kind == 0)
				EQ(completion(b.recv_cq).wr_id, ids[i]);
#ifdef NEWEST
			const uint8_t *entry = next_entry(&cq);
			uint64_t whole = 0, upper = 0;
			memcpy(&whole, entry, 2);
			memcpy(&upper, entry + 6, 6);
			whole |= upper << 16;
			if (wide)
				EQ(whole, ids[i]);
			else
				EQ(upper, 0);
#endif
			if (kind == 2) {
				attr.qp_state = IBV_QPS_RESET;
				EQ(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
				bring_up(a.qp, 7);
			}
		}
	close_side(&a);
	close_side(&b);
#ifndef NEWEST
	SKIP("libefa 44 has request ids of 16 bits, on devices of either kind; that it works on this one was seen");
#endif
}

/* Queue pairs that share completion queues, and use them unevenly: of several rings each goes round at its own pace. */
void shared_case(void)
{
	enum { QPS = 5, MESSAGES = 600 };
	struct side a, b, from[QPS], to[QPS];
	open_pair(&a, &b);
	for (int i = 0; i < QPS; i++) {
		from[i] = a;
		to[i] = b;
		TRUE((from[i].qp = create_qp(&a, 1)) != NULL);
		TRUE((to[i].qp = create_qp(&b, 1)) != NULL);
		bring_up(from[i].qp, 7);
		bring_up(to[i].qp, 7);
	}
	for (int i = 0; i < MESSAGES; i++) {
		int nth = i % 7 * (i % 3) % QPS;
		fill(&a, i % 64, 64, i);
		post_recv(&to[nth], i, 4096, 64);
		post_send(&from[nth], &to[nth], i, i % 64, 64);
		received(&to[nth], i, 64);
		sent(&from[nth], i);
		check(&b, 4096, 64, i);
	}
	for (int i = 0; i < QPS; i++) {
		EQ(ibv_destroy_qp(from[i].qp), 0);
		EQ(ibv_destroy_qp(to[i].qp), 0);
	}
	close_side(&a);
	close_side(&b);
}

/* A list of requests, longer than what one doorbell may announce, and as long as the queue. */
void limits_case(void)
{
	struct side a, b;
	open_pair(&a, &b);
#ifdef NEWEST
	struct efadv_wq_attr sq = { 0 }, rq = { 0 };
	EQ(efadv_query_qp_wqs(a.qp, &sq, &rq, sizeof(sq)), 0);
	unsigned least = expects("SOFTEFA_LIMITS", "min_send=32") ? 32 : 0, batch = expects("SOFTEFA_LIMITS", "batch=4") ? 4 : 16;
	EQ(sq.num_entries, least ? least : DEPTH);
	EQ(sq.max_batch, least && batch > least - 1 ? least - 1 : batch);
	if (expects("SOFTEFA_LAYOUT", "llq=64"))
		EQ((uintptr_t)sq.buffer % 4096, 64);
	if (expects("SOFTEFA_LAYOUT", "llq=192"))
		EQ((uintptr_t)sq.buffer % 4096, 192);
	if (expects("SOFTEFA_LAYOUT", "send=256"))
		EQ((uintptr_t)sq.doorbell % 4096, 256);
	if (expects("SOFTEFA_LAYOUT", "recv=512"))
		EQ((uintptr_t)rq.doorbell % 4096, 512);
#endif
	for (int round = 0; round < 50; round++) {
		struct request r[DEPTH];
		for (int i = 0; i < DEPTH; i++) {
			fill(&a, i * 64, 64, round + i);
			prepare(&r[i], &a, &b, i, i * 64, 64);
			r[i].wr.next = i + 1 < DEPTH ? &r[i + 1].wr : NULL;
			post_recv(&b, i, 8192 + i * 64, 64);
		}
		post(&a, &r[0]);
		int seen = 0;
		for (int i = 0; i < DEPTH; i++) {
			EQ(completion(b.recv_cq).status, IBV_WC_SUCCESS);
			struct ibv_wc wc = completion(a.send_cq);
			EQ(wc.status, IBV_WC_SUCCESS);
			seen |= 1 << wc.wr_id;
		}
		EQ(seen, (1 << DEPTH) - 1);
	}
	close_side(&a);
	close_side(&b);
}
