#include "common.h"

struct ibv_context *open_device(int nth)
{
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	TRUE(list != NULL);
	TRUE(count > 0);
	struct ibv_context *ctx = ibv_open_device(list[nth < count ? nth : 0]);
	TRUE(ctx != NULL);
	ibv_free_device_list(list);
	return ctx;
}

struct ibv_qp *create_qp(struct side *s, int recv_sge)
{
	struct ibv_qp_init_attr init = {
		.send_cq = s->send_cq,
		.recv_cq = s->recv_cq,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 2, .max_recv_sge = recv_sge,
			 .max_inline_data = 32 },
		.qp_type = IBV_QPT_DRIVER,
		.sq_sig_all = 1,
	};
	return efadv_create_driver_qp(s->pd, &init, EFADV_QP_DRIVER_TYPE_SRD);
}

void bring_up(struct ibv_qp *qp, int rnr_retry)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY, .rnr_retry = rnr_retry };
	EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
	attr.qp_state = IBV_QPS_RTR;
	EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_RTS;
	EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | (rnr_retry < 7 ? IBV_QP_RNR_RETRY : 0)), 0);
}

void open_side(struct side *s, int nth, int with_channel)
{
	memset(s, 0, sizeof(*s));
	s->ctx = open_device(nth);
	TRUE((s->pd = ibv_alloc_pd(s->ctx)) != NULL);
	if (with_channel)
		TRUE((s->channel = ibv_create_comp_channel(s->ctx)) != NULL);
	TRUE((s->send_cq = ibv_create_cq(s->ctx, 4 * DEPTH, NULL, s->channel, 0)) != NULL);
	TRUE((s->recv_cq = ibv_create_cq(s->ctx, 4 * DEPTH, NULL, s->channel, 0)) != NULL);
	TRUE((s->qp = create_qp(s, 1)) != NULL);
	bring_up(s->qp, 7);
	s->memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	TRUE(s->memory != MAP_FAILED);
	s->mr = ibv_reg_mr(s->pd, s->memory, MEMORY, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	TRUE(s->mr != NULL);
	EQ(ibv_query_gid(s->ctx, 1, 0, &s->gid), 0);
}

void close_side(struct side *s)
{
	EQ(ibv_destroy_qp(s->qp), 0);
	if (s->ah)
		EQ(ibv_destroy_ah(s->ah), 0);
	EQ(ibv_destroy_cq(s->send_cq), 0);
	EQ(ibv_destroy_cq(s->recv_cq), 0);
	EQ(ibv_dereg_mr(s->mr), 0);
	if (s->channel)
		EQ(ibv_destroy_comp_channel(s->channel), 0);
	EQ(ibv_dealloc_pd(s->pd), 0);
	EQ(ibv_close_device(s->ctx), 0);
	munmap(s->memory, MEMORY);
}

struct ibv_ah *resolve(struct side *from, union ibv_gid gid)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh.dgid = gid };
	struct ibv_ah *ah = ibv_create_ah(from->pd, &attr);
	TRUE(ah != NULL);
	return ah;
}

void open_pair(struct side *a, struct side *b)
{
	open_side(a, 0, 0);
	open_side(b, 1, 0);
	a->ah = resolve(a, b->gid);
	b->ah = resolve(b, a->gid);
}

struct ibv_wc completion(struct ibv_cq *cq)
{
	struct ibv_wc wc = { 0 };
	time_t end = time(NULL) + 10;
	int found;
	while ((found = ibv_poll_cq(cq, 1, &wc)) == 0)
		TRUE(time(NULL) < end);
	EQ(found, 1);
	return wc;
}

void post_recv(struct side *s, uint64_t id, size_t offset, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)s->memory + offset, length, s->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;
	EQ(ibv_post_recv(s->qp, &wr, &bad), 0);
}

void prepare(struct request *r, struct side *from, struct side *to, uint64_t id, size_t offset, uint32_t length)
{
	memset(r, 0, sizeof(*r));
	r->sge[0] = (struct ibv_sge){ (uintptr_t)from->memory + offset, length, from->mr->lkey };
	r->wr = (struct ibv_send_wr){ .wr_id = id, .sg_list = r->sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				      .send_flags = IBV_SEND_SIGNALED };
	r->wr.wr.ud.ah = from->ah;
	r->wr.wr.ud.remote_qpn = to->qp->qp_num;
	r->wr.wr.ud.remote_qkey = QKEY;
}

void post(struct side *from, struct request *r)
{
	struct ibv_send_wr *bad;
	EQ(ibv_post_send(from->qp, &r->wr, &bad), 0);
}

void post_send(struct side *from, struct side *to, uint64_t id, size_t offset, uint32_t length)
{
	struct request r;
	prepare(&r, from, to, id, offset, length);
	post(from, &r);
}

void fill(struct side *s, size_t offset, size_t length, unsigned seed)
{
	for (size_t i = 0; i < length; i++)
		s->memory[offset + i] = (char)(seed * 31 + i * 7 + i / 251);
}

void check(struct side *s, size_t offset, size_t length, unsigned seed)
{
	for (size_t i = 0; i < length; i++)
		EQ(s->memory[offset + i], (char)(seed * 31 + i * 7 + i / 251));
}

struct ibv_qp *create_reader(struct side *s)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = s->send_cq,
		.recv_cq = s->recv_cq,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 2, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_DRIVER,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = s->pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ,
	};
	struct efadv_qp_init_attr efa = { .driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD };
	return efadv_create_qp_ex(s->ctx, &init, &efa, sizeof(efa));
}

void received(struct side *s, uint64_t id, uint32_t length)
{
	struct ibv_wc wc = completion(s->recv_cq);
	EQ(wc.status, IBV_WC_SUCCESS);
	EQ(wc.opcode, IBV_WC_RECV);
	EQ(wc.wr_id, id);
	EQ(wc.byte_len, length);
	EQ(wc.qp_num, s->qp->qp_num);
}

void sent(struct side *s, uint64_t id)
{
	struct ibv_wc wc = completion(s->send_cq);
	EQ(wc.status, IBV_WC_SUCCESS);
	EQ(wc.opcode, IBV_WC_SEND);
	EQ(wc.wr_id, id);
}

int expects(const char *variable, const char *what)
{
	const char *value = getenv(variable);
	return value && strstr(value, what);
}
