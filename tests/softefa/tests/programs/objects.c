/* What is made, queried, moved and destroyed. */
#include "common.h"

void device_case(void)
{
	struct side s;
	open_side(&s, 0, 0);
	struct ibv_device_attr attr;
	EQ(ibv_query_device(s.ctx, &attr), 0);
	EQ(attr.vendor_id, 0x1d0f);
	EQ(attr.vendor_part_id, 0xefa1);
	EQ(attr.phys_port_cnt, 1);
	EQ(attr.max_sge_rd, 1);
	TRUE(attr.max_qp >= 1000);
	struct ibv_port_attr port;
	EQ(ibv_query_port(s.ctx, 1, &port), 0);
	EQ(port.state, IBV_PORT_ACTIVE);
	EQ(port.max_msg_sz, 8928);
	EQ(port.gid_tbl_len, 1);
	FAILS(ibv_query_port(s.ctx, 2, &port), EINVAL);
	TRUE(s.gid.raw[0] == 0xfe && s.gid.raw[1] == 0x80);
	union ibv_gid gid;
	TRUE(ibv_query_gid(s.ctx, 1, 1, &gid) != 0);
	struct ibv_gid_entry entries[4];
	EQ(ibv_query_gid_table(s.ctx, entries, 4, 0), 1);
	EQ(memcmp(&entries[0].gid, &s.gid, sizeof(gid)), 0);
	EQ(entries[0].port_num, 1);
	__be16 pkey;
	EQ(ibv_query_pkey(s.ctx, 1, 0, &pkey), 0);
	EQ(pkey, 0xffff);
	struct efadv_device_attr efa;
	EQ(efadv_query_device(s.ctx, &efa, sizeof(efa)), 0);
	EQ(efa.max_sq_wr, 4096);
	EQ(efa.max_rq_wr, 32768);
	EQ(efa.max_sq_sge, 2);
	EQ(efa.max_rq_sge, 2);
	EQ(efa.inline_buf_size, 32);
	EQ(efa.max_rdma_size, 1 << 30);
	unsigned caps = EFADV_DEVICE_ATTR_CAPS_RDMA_READ | EFADV_DEVICE_ATTR_CAPS_RNR_RETRY |
			EFADV_DEVICE_ATTR_CAPS_CQ_WITH_SGID;
#ifdef NEWEST
	caps |= EFADV_DEVICE_ATTR_CAPS_RDMA_WRITE | EFADV_DEVICE_ATTR_CAPS_CQ_WITH_EXT_MEM_DMABUF |
		EFADV_DEVICE_ATTR_CAPS_COMP_CNTR;
	EQ(efa.inline_buf_size_ex, 80);
#endif
	EQ(efa.device_caps, caps);
	close_side(&s);
}

void objects_case(void)
{
	struct side s;
	open_side(&s, 0, 1);
	s.ah = resolve(&s, s.gid);
	struct ibv_ah *again = resolve(&s, s.gid);
	struct efadv_ah_attr first, second;
	EQ(efadv_query_ah(s.ah, &first, sizeof(first)), 0);
	EQ(efadv_query_ah(again, &second, sizeof(second)), 0);
	EQ(first.ahn, second.ahn);
	/* What is used is busy, whatever uses it. */
	FAILS(ibv_dealloc_pd(s.pd), EBUSY);
	FAILS(ibv_destroy_cq(s.send_cq), EBUSY);
	FAILS(ibv_destroy_cq(s.recv_cq), EBUSY);
	EQ(ibv_destroy_qp(s.qp), 0);
	EQ(ibv_destroy_cq(s.send_cq), 0);
	EQ(ibv_destroy_cq(s.recv_cq), 0);
	FAILS(ibv_dealloc_pd(s.pd), EBUSY);
	EQ(ibv_dereg_mr(s.mr), 0);
	FAILS(ibv_dealloc_pd(s.pd), EBUSY);
	EQ(ibv_destroy_ah(s.ah), 0);
	FAILS(ibv_dealloc_pd(s.pd), EBUSY);
	EQ(ibv_destroy_ah(again), 0);
	EQ(ibv_dealloc_pd(s.pd), 0);
	EQ(ibv_destroy_comp_channel(s.channel), 0);
	EQ(ibv_close_device(s.ctx), 0);

	/* Limits, and what cannot be. */
	s.ctx = open_device(0);
	s.pd = ibv_alloc_pd(s.ctx);
	NO(ibv_create_cq(s.ctx, 1 << 20, NULL, NULL, 0), EINVAL);
	NO(ibv_create_cq(s.ctx, 16, NULL, NULL, 1000), EINVAL);
	struct ibv_ah_attr nowhere = { .is_global = 1, .port_num = 1 }, no_port = { .is_global = 1, .port_num = 2 };
	NO(ibv_create_ah(s.pd, &nowhere), EINVAL);
	NO(ibv_create_ah(s.pd, &no_port), EINVAL);
	s.send_cq = s.recv_cq = ibv_create_cq(s.ctx, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr init = { .send_cq = s.send_cq, .recv_cq = s.send_cq, .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
	NO(ibv_create_qp(s.pd, &init), EOPNOTSUPP);
	/* A queue pair that only sends. */
	init.qp_type = IBV_QPT_DRIVER;
	init.cap.max_recv_wr = 0;
	struct ibv_qp *qp = efadv_create_driver_qp(s.pd, &init, EFADV_QP_DRIVER_TYPE_SRD);
	TRUE(qp != NULL);
	EQ(ibv_destroy_qp(qp), 0);
	EQ(ibv_destroy_cq(s.send_cq), 0);
	EQ(ibv_dealloc_pd(s.pd), 0);
	EQ(ibv_close_device(s.ctx), 0);
}

void regions_case(void)
{
	struct ibv_context *ctx = open_device(0);
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	size_t page = 4096;
	char *memory = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *one = ibv_reg_mr(pd, memory + 5, 100, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mr *two = ibv_reg_mr(pd, memory + 5, 100, 0);
	struct ibv_mr *three = ibv_reg_mr(pd, memory, page, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
	TRUE(one && two && three);
	TRUE(one->lkey != two->lkey && one->lkey < 1 << 24);
	NO(ibv_reg_mr(pd, memory, 0, IBV_ACCESS_LOCAL_WRITE), EINVAL);
	NO(ibv_reg_mr(pd, memory, page, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	NO(ibv_reg_mr(pd, memory, page, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC), EOPNOTSUPP);
	NO(ibv_reg_mr(pd, memory, page, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND), EOPNOTSUPP);
	TRUE(ibv_reg_mr_iova(pd, memory, page, 0x7000, IBV_ACCESS_LOCAL_WRITE) != NULL);
	NO(ibv_reg_mr_iova(pd, memory, page, 0x7008, IBV_ACCESS_LOCAL_WRITE), EINVAL);
	/* Pages that are not there, or not to be written. */
	munmap(memory + 2 * page, page);
	NO(ibv_reg_mr(pd, memory, 4 * page, IBV_ACCESS_LOCAL_WRITE), EFAULT);
	NO(ibv_reg_mr(pd, (void *)page, page, IBV_ACCESS_LOCAL_WRITE), EFAULT);
	mprotect(memory + page, page, PROT_READ);
	NO(ibv_reg_mr(pd, memory, 2 * page, IBV_ACCESS_LOCAL_WRITE), EFAULT);
	TRUE(ibv_reg_mr(pd, memory, 2 * page, 0) != NULL);
	EQ(ibv_dereg_mr(one), 0);
	EQ(ibv_dereg_mr(two), 0);
	EQ(ibv_dereg_mr(three), 0);
	EQ(ibv_close_device(ctx), 0);
}

void states_case(void)
{
	struct side s;
	open_side(&s, 0, 0);
	struct ibv_qp *qp = create_qp(&s, 1);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .port_num = 1, .qkey = 5, .sq_psn = 0x1234567, .rnr_retry = 3 };
	struct ibv_qp_init_attr init;
	int to_init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
	attr.qp_state = IBV_QPS_INIT;
	FAILS(ibv_modify_qp(qp, &attr, to_init & ~IBV_QP_QKEY), EINVAL);
	FAILS(ibv_modify_qp(qp, &attr, to_init | IBV_QP_PATH_MTU), EOPNOTSUPP);
	EQ(ibv_modify_qp(qp, &attr, to_init), 0);
	/* No state, hence the same: another key. */
	attr.qkey = 6;
	EQ(ibv_modify_qp(qp, &attr, IBV_QP_QKEY), 0);
	attr.qp_state = IBV_QPS_RTR;
	EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_RTS;
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
	EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RNR_RETRY), 0);
	memset(&attr, 0, sizeof(attr));
	EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_QKEY | IBV_QP_SQ_PSN | IBV_QP_RNR_RETRY | IBV_QP_PORT | IBV_QP_CAP,
			&init),
	   0);
	EQ(attr.qp_state, IBV_QPS_RTS);
	EQ(attr.qkey, 6);
	EQ(attr.sq_psn, 0x234567);
	EQ(attr.rnr_retry, 3);
	EQ(attr.port_num, 1);
	EQ(attr.cap.max_send_wr, DEPTH);
	EQ(attr.cap.max_inline_data, 32);
	FAILS(ibv_query_qp(qp, &attr, IBV_QP_AV, &init), EOPNOTSUPP);
	attr.qp_state = IBV_QPS_ERR;
	EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_RTS;
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), EINVAL);
	attr.qp_state = IBV_QPS_RESET;
	EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	bring_up(qp, 7);
	EQ(ibv_destroy_qp(qp), 0);
	close_side(&s);
}

void mappings_case(void)
{
#ifdef NEWEST
	enum { RING = 32768 }; /* entries of 32 bytes, always */
#else
	enum { RING = 16384 };
#endif
	struct ibv_context *ctx = open_device(0);
	/* The first key that there is, exactly as long as it is. */
	struct ibv_cq *cq = ibv_create_cq(ctx, 1024, NULL, NULL, 0);
	TRUE(cq != NULL);
	void *ring = MAP_FAILED;
	off_t key;
	for (key = 0; key < 1 << 20 && ring == MAP_FAILED; key += 4096)
		ring = mmap(NULL, RING, PROT_READ, MAP_SHARED, ctx->cmd_fd, key);
	TRUE(ring != MAP_FAILED);
	key -= 4096;
	EQ(munmap(ring, RING), 0);
	FAILS((long)mmap(NULL, RING / 2, PROT_READ, MAP_SHARED, ctx->cmd_fd, key), EINVAL);
	FAILS((long)mmap(NULL, 2 * RING, PROT_READ, MAP_SHARED, ctx->cmd_fd, key), EINVAL);
	FAILS((long)mmap(NULL, RING, PROT_READ, MAP_PRIVATE, ctx->cmd_fd, key), EINVAL);
	FAILS((long)mmap(NULL, RING, PROT_READ | PROT_EXEC, MAP_SHARED, ctx->cmd_fd, key), EPERM);
	/* What was mapped stays when the object is gone; it cannot be mapped anew. */
	char *kept = mmap(NULL, RING, PROT_READ, MAP_SHARED, ctx->cmd_fd, key);
	TRUE(kept != MAP_FAILED);
	EQ(ibv_destroy_cq(cq), 0);
	EQ(kept[0] + kept[RING - 1], 0);
	FAILS((long)mmap(NULL, RING, PROT_READ, MAP_SHARED, ctx->cmd_fd, key), EINVAL);
	EQ(munmap(kept, RING), 0);
	EQ(ibv_close_device(ctx), 0);
}

void many_case(void)
{
	enum { MANY = 1000 };
	static struct ibv_qp *qps[MANY];
	struct side s;
	open_side(&s, 0, 0);
	s.ah = resolve(&s, s.gid);
	for (int i = 0; i < MANY; i++) {
		TRUE((qps[i] = create_qp(&s, 1)) != NULL);
		bring_up(qps[i], 7);
	}
	/* The last one works like the first. */
	struct side last = s;
	last.qp = qps[MANY - 1];
	fill(&s, 0, 100, 1);
	post_recv(&last, 7, 4096, 100);
	post_send(&s, &last, 8, 0, 100);
	EQ(completion(s.recv_cq).qp_num, last.qp->qp_num);
	EQ(completion(s.send_cq).status, IBV_WC_SUCCESS);
	check(&s, 4096, 100, 1);
	for (int i = 0; i < MANY; i++)
		EQ(ibv_destroy_qp(qps[i]), 0);
	close_side(&s);
}
