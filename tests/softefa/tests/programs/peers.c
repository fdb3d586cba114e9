#include <sched.h>

#include "peers.h"

struct board *board;
int self, count;

double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

void barrier(unsigned many)
{
	static unsigned nth;
	nth++;
	__atomic_add_fetch(&board->arrived, 1, __ATOMIC_SEQ_CST);
	for (double end = seconds() + 60; __atomic_load_n(&board->arrived, __ATOMIC_SEQ_CST) < nth * many; usleep(200))
		TRUE(seconds() < end);
}

void open_peer(struct peer *p, int device, int depth, size_t length, int with_channel)
{
	struct side *s = &p->s;
	memset(p, 0, sizeof(*p));
	s->ctx = open_device(device);
	TRUE((s->pd = ibv_alloc_pd(s->ctx)) != NULL);
	if (with_channel)
		TRUE((s->channel = ibv_create_comp_channel(s->ctx)) != NULL);
	TRUE((s->send_cq = ibv_create_cq(s->ctx, 2 * depth, NULL, s->channel, 0)) != NULL);
	TRUE((s->recv_cq = ibv_create_cq(s->ctx, 2 * depth, NULL, s->channel, 0)) != NULL);
	struct ibv_qp_init_attr_ex init = {
		.send_cq = s->send_cq,
		.recv_cq = s->recv_cq,
		.cap = { .max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_DRIVER,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = s->pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ,
	};
#ifdef NEWEST
	init.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
#endif
	struct efadv_qp_init_attr efa = { .driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD };
	TRUE((s->qp = efadv_create_qp_ex(s->ctx, &init, &efa, sizeof(efa))) != NULL);
	p->qp = ibv_qp_to_qp_ex(s->qp);
	bring_up(s->qp, 7);
	p->length = length;
	p->shared = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	TRUE(p->shared != MAP_FAILED);
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | (HAS_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0);
	TRUE((p->mr = ibv_reg_mr(s->pd, p->shared, length, access)) != NULL);
	EQ(ibv_query_gid(s->ctx, 1, 0, &s->gid), 0);
}

void close_peer(struct peer *p)
{
	struct side *s = &p->s;
	EQ(ibv_destroy_qp(s->qp), 0);
	for (int i = 0; i < 2 * MOST; i++)
		if (p->ahs[i])
			EQ(ibv_destroy_ah(p->ahs[i]), 0);
	EQ(ibv_destroy_cq(s->send_cq), 0);
	EQ(ibv_destroy_cq(s->recv_cq), 0);
	EQ(ibv_dereg_mr(p->mr), 0);
	if (s->channel)
		EQ(ibv_destroy_comp_channel(s->channel), 0);
	EQ(ibv_dealloc_pd(s->pd), 0);
	EQ(ibv_close_device(s->ctx), 0);
	munmap(p->shared, p->length);
}

void tell(struct peer *p, int nth)
{
	board->addresses[nth] = (struct address){ p->s.gid, p->s.qp->qp_num, p->mr->rkey, (uintptr_t)p->shared };
	__atomic_add_fetch(&board->told, 1, __ATOMIC_SEQ_CST);
}

void meet(struct peer *p, int addresses)
{
	for (double end = seconds() + 60; __atomic_load_n(&board->told, __ATOMIC_SEQ_CST) < (unsigned)addresses; usleep(200))
		TRUE(seconds() < end);
	for (int i = 0; i < addresses; i++)
		p->ahs[i] = resolve(&p->s, board->addresses[i].gid);
	/* RDMA is for those alone whom the other side has resolved. */
	barrier(count);
}

static void begin(struct peer *p, uint64_t id)
{
	ibv_wr_start(p->qp);
	p->qp->wr_id = id;
	p->qp->wr_flags = IBV_SEND_SIGNALED;
}

static void end(struct peer *p, int to, char *bytes, uint32_t length)
{
	ibv_wr_set_ud_addr(p->qp, p->ahs[to], board->addresses[to].qpn, QKEY);
	ibv_wr_set_sge(p->qp, p->mr->lkey, (uintptr_t)bytes, length);
	EQ(ibv_wr_complete(p->qp), 0);
}

void send_to(struct peer *p, int to, uint64_t id, void *bytes, uint32_t length)
{
	begin(p, id);
	ibv_wr_send(p->qp);
	end(p, to, bytes, length);
}

void receive(struct peer *p, uint64_t id, void *bytes, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)bytes, length, p->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;
	EQ(ibv_post_recv(p->s.qp, &wr, &bad), 0);
}

void rdma(struct peer *p, int op, int to, uint64_t id, size_t from, size_t at, uint32_t length)
{
	struct address *peer = &board->addresses[to];
	begin(p, id);
	if (op == READ)
		ibv_wr_rdma_read(p->qp, peer->rkey, peer->memory + at);
	else if (op == WRITE)
		ibv_wr_rdma_write(p->qp, peer->rkey, peer->memory + at);
	else
		ibv_wr_rdma_write_imm(p->qp, peer->rkey, peer->memory + at, htobe32(length));
	end(p, to, p->shared + from, length);
}

struct ibv_wc next(struct ibv_cq *a, struct ibv_cq *b)
{
	struct ibv_wc wc = { 0 };
	double end = 0;
	for (unsigned looks = 1;; looks++) {
		int found = ibv_poll_cq(a, 1, &wc);
		if (found == 0 && b)
			found = ibv_poll_cq(b, 1, &wc);
		if (found > 0)
			return wc;
		EQ(found, 0);
		if (looks % 50 == 0)
			sched_yield();
		if (looks % 5000 == 0) {
			end = end ? end : seconds() + 30;
			TRUE(seconds() < end);
			usleep(50);
		}
	}
}

void processes(int many, void (*body)(void), int killed)
{
	pid_t children[MOST];
	count = many;
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	TRUE(board != MAP_FAILED);
	fflush(stdout);
	for (int i = 0; i < many; i++)
		if ((children[i] = fork()) == 0) {
			self = i;
			alarm(120);
			body();
			exit(0);
		}
	if (killed >= 0) {
		/* In the middle of transfers, and not of their beginning. */
		for (double end = seconds() + 30; __atomic_load_n(&board->moving, __ATOMIC_SEQ_CST) < 20; usleep(100))
			TRUE(seconds() < end);
		board->killed = seconds();
		EQ(kill(children[killed], SIGKILL), 0);
	}
	int failed = 0;
	for (int i = 0; i < many; i++) {
		int status;
		EQ(waitpid(children[i], &status, 0), children[i]);
		int good = i == killed ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0;
		if (!good)
			fprintf(stderr, "process %d ended with %#x\n", i, status);
		failed |= !good;
	}
	EQ(failed, 0);
	munmap(board, sizeof(*board));
}
