/* Every status of the device by what causes it where nothing is made up. Two are not here: 8 (the peer's device reset the
 * connection) is the hardware's own, and 13 (the peer stopped answering) needs a peer in another process. */
#include "raw.h"

static void fails(struct side *s, struct request *r, int vendor, enum ibv_wc_status status)
{
	post(s, r);
	struct ibv_wc wc = completion(s->send_cq);
	EQ(wc.vendor_err, vendor);
	EQ(wc.status, status);
	EQ(wc.wr_id, r->wr.wr_id);
}

void statuses_case(void)
{
	struct side a, b;
	open_pair(&a, &b);
	struct request r;
	/* 5: a local key that is none, and a range that is not in it. */
	prepare(&r, &a, &b, 1, 0, 10);
	r.sge[0].lkey ^= 1 << 20;
	fails(&a, &r, 5, IBV_WC_LOC_PROT_ERR);
	prepare(&r, &a, &b, 2, MEMORY - 4, 10);
	fails(&a, &r, 5, IBV_WC_LOC_PROT_ERR);
	/* 6: longer than a message. The receive that is posted stays. */
	post_recv(&b, 50, 0, 10000);
	prepare(&r, &a, &b, 3, 0, 8929);
	fails(&a, &r, 6, IBV_WC_LOC_LEN_ERR);
	post_send(&a, &b, 4, 0, 8928);
	received(&b, 50, 8928);
	sent(&a, 4);
	/* 9: no such queue pair, or another key. */
	prepare(&r, &a, &b, 5, 0, 10);
	r.wr.wr.ud.remote_qpn = 1999;
	fails(&a, &r, 9, IBV_WC_REM_INV_RD_REQ_ERR);
	prepare(&r, &a, &b, 6, 0, 10);
	r.wr.wr.ud.remote_qkey++;
	fails(&a, &r, 9, IBV_WC_REM_INV_RD_REQ_ERR);
	/* 11: the receive is too short, and told so. */
	post_recv(&b, 51, 0, 9);
	prepare(&r, &a, &b, 7, 0, 10);
	fails(&a, &r, 11, IBV_WC_REM_INV_REQ_ERR);
	struct ibv_wc wc = completion(b.recv_cq);
	EQ(wc.wr_id, 51);
	EQ(wc.status, IBV_WC_LOC_LEN_ERR);
	/* 12, and 5 at the receiver: the receive's memory is not what it says. */
	struct ibv_sge beyond = { (uintptr_t)b.memory + MEMORY - 4, 10, b.mr->lkey };
	struct ibv_recv_wr bad_recv = { .wr_id = 53, .sg_list = &beyond, .num_sge = 1 }, *bad;
	EQ(ibv_post_recv(b.qp, &bad_recv, &bad), 0);
	prepare(&r, &a, &b, 11, 0, 10);
	fails(&a, &r, 12, IBV_WC_BAD_RESP_ERR);
	wc = completion(b.recv_cq);
	EQ(wc.wr_id, 53);
	EQ(wc.vendor_err, 5);
	EQ(wc.status, IBV_WC_LOC_PROT_ERR);
	/* 4: an address handle of another domain's. */
	struct side elsewhere = a;
	TRUE((elsewhere.pd = ibv_alloc_pd(a.ctx)) != NULL);
	struct ibv_ah *of_other = resolve(&elsewhere, b.gid);
	prepare(&r, &a, &b, 12, 0, 10);
	r.wr.wr.ud.ah = of_other;
	fails(&a, &r, 4, IBV_WC_LOC_QP_OP_ERR);
	EQ(ibv_destroy_ah(of_other), 0);
	EQ(ibv_dealloc_pd(elsewhere.pd), 0);
	/* 15: nobody has that address. */
	union ibv_gid nobody = b.gid;
	nobody.raw[15] ^= 0x80;
	struct ibv_ah *to_nobody = resolve(&a, nobody);
	prepare(&r, &a, &b, 8, 0, 10);
	r.wr.wr.ud.ah = to_nobody;
	post(&a, &r);
	EQ(completion(a.send_cq).vendor_err, 15);
	EQ(ibv_destroy_ah(to_nobody), 0);
	/* 10: no receive, and no patience. */
	struct side hasty = a;
	TRUE((hasty.qp = create_qp(&a, 1)) != NULL);
	bring_up(hasty.qp, 1);
	prepare(&r, &a, &b, 9, 0, 10);
	fails(&hasty, &r, 10, IBV_WC_RNR_RETRY_EXC_ERR);
	EQ(ibv_destroy_qp(hasty.qp), 0);
	/* 1: what waits for a receive for ever, and receives, when their queue pairs go to ERR. */
	post_send(&a, &b, 10, 0, 10);
	post_recv(&a, 52, 0, 10);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	EQ(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE), 0);
	wc = completion(a.send_cq);
	EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
	EQ(wc.wr_id, 10);
	wc = completion(a.recv_cq);
	EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
	EQ(wc.wr_id, 52);
	close_side(&a);
	close_side(&b);
}

#ifdef NEWEST
/* How a send entry begins, as the device reads it. */
struct entry {
	uint16_t req_id;
	uint8_t ctrl1, ctrl2;
	uint16_t dest_qpn, length;
	uint32_t imm;
	uint16_t ah;
	uint8_t hints, reserved;
	uint32_t qkey;
	uint8_t reserved2[6];
	uint16_t req_id_ex[3];
	uint32_t buffers[8];
};

enum { SEND, READ, WRITE, INLINE = 1 << 5, META = 1 << 7, FIXED = 7 << 2 };

static struct entry entry(struct side *from, struct side *to, uint16_t id)
{
	struct efadv_ah_attr ah;
	EQ(efadv_query_ah(from->ah, &ah, sizeof(ah)), 0);
	return (struct entry){ .req_id = id, .ctrl1 = META | SEND, .ctrl2 = FIXED, .dest_qpn = to->qp->qp_num, .ah = ah.ahn, .qkey = QKEY };
}

static void ends(struct ring *sq, struct ring *cq, struct entry *e, int status)
{
	write_entry(sq, e, sizeof(*e));
	const uint8_t *completion = next_entry(cq);
	EQ(completion[0] | completion[1] << 8, e->req_id);
	EQ(completion[2], status);
	EQ(completion[3] >> 1 & 3, 1);
	EQ(completion[3] >> 4 & 7, e->ctrl1 & 7);
}
#endif

/* What libefa never writes: by a program with a data path of its own. */
void malformed_case(void)
{
#ifdef NEWEST
	struct side a, b;
	open_pair(&a, &b);
	struct ring sq = send_ring(a.qp), cq = cq_ring(a.send_cq);
	struct entry e;
	for (int round = 0; round < 10; round++) {
		/* 2: the entry makes no sense. */
		e = entry(&a, &b, 1);
		e.ctrl1 &= ~META;
		ends(&sq, &cq, &e, 2);
		e = entry(&a, &b, 2);
		e.ctrl2 &= ~(1 << 2);
		ends(&sq, &cq, &e, 2);
		e = entry(&a, &b, 3);
		e.reserved2[3] = 1;
		ends(&sq, &cq, &e, 2);
		e = entry(&a, &b, 4);
		e.ctrl2 ^= 1;
		ends(&sq, &cq, &e, 2);
		/* ... as does a request id of 64 bits where they have 16. */
		e = entry(&a, &b, 5);
		e.req_id_ex[2] = 1;
		ends(&sq, &cq, &e, 2);
		/* 3: there is no such operation, or not so. */
		e = entry(&a, &b, 6);
		e.ctrl1 = META | 5;
		ends(&sq, &cq, &e, 3);
		e = entry(&a, &b, 7);
		e.ctrl1 = META | READ;
		e.length = 2;
		ends(&sq, &cq, &e, 3);
		e = entry(&a, &b, 8);
		e.ctrl1 = META | WRITE | INLINE;
		ends(&sq, &cq, &e, 3);
		e = entry(&a, &b, 9);
		e.length = 3;
		ends(&sq, &cq, &e, 3);
		/* 4: a handle that is none. */
		e = entry(&a, &b, 10);
		e.ah ^= 0x155;
		ends(&sq, &cq, &e, 4);
		/* 6: more inline than there is room for. */
		e = entry(&a, &b, 11);
		e.ctrl1 |= INLINE;
		e.length = 33;
		ends(&sq, &cq, &e, 6);
		/* 5: a read into memory that is not to be written. */
		struct ibv_mr *fixed = ibv_reg_mr(a.pd, a.memory, 4096, 0);
		TRUE(fixed != NULL);
		e = entry(&a, &b, 12);
		e.ctrl1 = META | READ;
		e.length = 1;
		uint64_t from = (uintptr_t)b.memory, to = (uintptr_t)a.memory;
		uint32_t buffers[] = { 8, b.mr->rkey, from, from >> 32, 8, fixed->lkey, to, to >> 32 };
		memcpy(e.buffers, buffers, sizeof(buffers));
		ends(&sq, &cq, &e, 5);
		/* 6: two lengths for one read. */
		e.buffers[5] = a.mr->lkey;
		e.buffers[0] = 9;
		ends(&sq, &cq, &e, 6);
		/* 0: as it should be. */
		e.buffers[0] = 8;
		fill(&b, 0, 8, round);
		ends(&sq, &cq, &e, 0);
		check(&a, 0, 8, round);
		EQ(ibv_dereg_mr(fixed), 0);
	}
	close_side(&a);
	close_side(&b);
#else
	SKIP("libefa 44 does not tell where a queue pair's queues are, so that no program writes entries of its own");
#endif
}

/* 18: the two queue pairs differ in whether writes consume a receive. */
void mismatch_case(void)
{
#ifdef NEWEST
	struct side a, b;
	open_pair(&a, &b);
	struct ibv_mr *exposed = ibv_reg_mr(b.pd, b.memory, MEMORY, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	TRUE(exposed != NULL);
	struct side sides[2] = { a, b };
	for (int asks = 0; asks < 2; asks++)
		for (int takes = 0; takes < 2; takes++) {
			struct ibv_cq *cqs[2];
			for (int i = 0; i < 2; i++) {
				struct ibv_cq_init_attr_ex wants = { .cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS };
				struct efadv_cq_init_attr efa_cq = { .wc_flags = EFADV_WC_EX_WITH_IS_UNSOLICITED };
				struct ibv_cq_ex *cq = efadv_create_cq(sides[i].ctx, &wants, &efa_cq, sizeof(efa_cq));
				TRUE(cq != NULL);
				cqs[i] = sides[i].recv_cq = ibv_cq_ex_to_cq(cq);
				struct ibv_qp_init_attr_ex init = {
					.send_cq = sides[i].send_cq,
					.recv_cq = sides[i].recv_cq,
					.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
					.qp_type = IBV_QPT_DRIVER,
					.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					.pd = sides[i].pd,
					.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
				};
				struct efadv_qp_init_attr efa = { .driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD };
				efa.flags = (i ? takes : asks) ? EFADV_QP_FLAGS_UNSOLICITED_WRITE_RECV : 0;
				TRUE((sides[i].qp = efadv_create_qp_ex(sides[i].ctx, &init, &efa, sizeof(efa))) != NULL);
				bring_up(sides[i].qp, 7);
			}
			if (!takes)
				post_recv(&sides[1], 7, 0, 0);
			struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(sides[0].qp);
			ibv_wr_start(qp);
			qp->wr_id = 3;
			qp->wr_flags = IBV_SEND_SIGNALED;
			ibv_wr_rdma_write_imm(qp, exposed->rkey, (uintptr_t)b.memory, htobe32(5));
			ibv_wr_set_ud_addr(qp, a.ah, sides[1].qp->qp_num, QKEY);
			ibv_wr_set_sge(qp, a.mr->lkey, (uintptr_t)a.memory, 100);
			EQ(ibv_wr_complete(qp), 0);
			EQ(completion(a.send_cq).vendor_err, asks == takes ? 0 : 18);
			if (asks == takes) {
				struct ibv_cq_ex *cq = (struct ibv_cq_ex *)cqs[1];
				struct ibv_poll_cq_attr attr = { 0 };
				time_t end = time(NULL) + 10;
				int found;
				while ((found = ibv_start_poll(cq, &attr)) == ENOENT)
					TRUE(time(NULL) < end);
				EQ(found, 0);
				EQ(ibv_wc_read_opcode(cq), IBV_WC_RECV_RDMA_WITH_IMM);
				EQ(efadv_wc_is_unsolicited(efadv_cq_from_ibv_cq_ex(cq)), takes);
				EQ(ibv_wc_read_byte_len(cq), 100);
				ibv_end_poll(cq);
			}
			for (int i = 0; i < 2; i++) {
				EQ(ibv_destroy_qp(sides[i].qp), 0);
				EQ(ibv_destroy_cq(cqs[i]), 0);
			}
		}
	EQ(ibv_dereg_mr(exposed), 0);
	close_side(&a);
	close_side(&b);
#else
	SKIP("libefa 44 makes no queue pair whose writes consume no receive");
#endif
}
