/* Memory that a program gives by a file (a dma-buf, here a file in memory), or by an address. */
#include "raw.h"
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>

static int memory_file(size_t bytes)
{
	int fd = memfd_create("given", MFD_CLOEXEC);
	TRUE(fd >= 0);
	EQ(ftruncate(fd, bytes), 0);
	return fd;
}

void dmabuf_case(void)
{
	enum { BYTES = 5 * 4096, AT = 4096 + 100, LENGTH = 3 * 4096 };
	const uint64_t iova = 0x70000000 + 100;
	struct side a, b;
	open_pair(&a, &b);
	int fd = memory_file(BYTES);
	char *mine = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	TRUE(mine != MAP_FAILED);
	int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
	struct ibv_mr *to_write = ibv_reg_dmabuf_mr(a.pd, AT, LENGTH, iova, fd, rights | IBV_ACCESS_RELAXED_ORDERING);
	struct ibv_mr *to_read = ibv_reg_dmabuf_mr(a.pd, 0, BYTES, 0, fd, 0);
	TRUE(to_write && to_read);
	/* Refusals. */
	NO(ibv_reg_dmabuf_mr(a.pd, 0, BYTES + 1, 0, fd, rights), EINVAL);
	NO(ibv_reg_dmabuf_mr(a.pd, AT, BYTES, 100, fd, rights), EINVAL);
	NO(ibv_reg_dmabuf_mr(a.pd, AT, 100, 101, fd, rights), EINVAL);
	NO(ibv_reg_dmabuf_mr(a.pd, 0, 0, 0, fd, rights), EINVAL);
	NO(ibv_reg_dmabuf_mr(a.pd, 0, 100, 0, -1, rights), EBADF);
	NO(ibv_reg_dmabuf_mr(a.pd, 0, 100, 0, 999, rights), EBADF);
	NO(ibv_reg_dmabuf_mr(a.pd, 0, 100, 0, a.ctx->async_fd, rights), EINVAL);
	NO(ibv_reg_dmabuf_mr(a.pd, 0, 100, 0, fd, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	NO(ibv_reg_dmabuf_mr(a.pd, 0, 100, 0, fd, IBV_ACCESS_MW_BIND), EINVAL);
	NO(ibv_reg_dmabuf_mr(a.pd, 0, 100, 0, fd, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC), EOPNOTSUPP);
	/* The region stays when the file is closed. */
	close(fd);
	struct side of_file = a;
	of_file.memory = mine;
	/* Sent from, received into, read by others: at the addresses that were given. */
	fill(&of_file, AT, 1000, 1);
	post_recv(&b, 1, 0, 1000);
	struct request r;
	prepare(&r, &a, &b, 2, 0, 1000);
	r.sge[0] = (struct ibv_sge){ iova, 1000, to_write->lkey };
	post(&a, &r);
	received(&b, 1, 1000);
	sent(&a, 2);
	check(&b, 0, 1000, 1);
	struct ibv_sge sge = { iova + 5000, 1000, to_write->lkey };
	struct ibv_recv_wr wr = { .wr_id = 3, .sg_list = &sge, .num_sge = 1 }, *bad;
	EQ(ibv_post_recv(a.qp, &wr, &bad), 0);
	fill(&b, 0, 1000, 2);
	post_send(&b, &a, 4, 0, 1000);
	received(&a, 3, 1000);
	sent(&b, 4);
	check(&of_file, AT + 5000, 1000, 2);
	struct ibv_qp *reader = create_reader(&b);
	TRUE(reader != NULL);
	bring_up(reader, 7);
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(reader);
	for (int inside = 1; inside >= 0; inside--) {
		fill(&of_file, AT, LENGTH, 3);
		ibv_wr_start(qp);
		qp->wr_id = 5;
		qp->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_rdma_read(qp, to_write->rkey, iova + !inside);
		ibv_wr_set_ud_addr(qp, b.ah, a.qp->qp_num, QKEY);
		ibv_wr_set_sge(qp, b.mr->lkey, (uintptr_t)b.memory, LENGTH);
		EQ(ibv_wr_complete(qp), 0);
		EQ(completion(b.send_cq).vendor_err, inside ? 0 : 7);
		check(&b, 0, LENGTH, 3);
	}
	/* What is only to be read takes nothing. */
	sge = (struct ibv_sge){ 0, 100, to_read->lkey };
	wr.wr_id = 6;
	EQ(ibv_post_recv(a.qp, &wr, &bad), 0);
	post_send(&b, &a, 7, 0, 100);
	EQ(completion(a.recv_cq).vendor_err, 5);
	EQ(completion(b.send_cq).vendor_err, 12);
	/* Cut off by its owner: the bytes are lost, and nobody ends. */
	fd = memory_file(4096);
	struct ibv_mr *cut = ibv_reg_dmabuf_mr(a.pd, 0, 4096, 0, fd, rights);
	TRUE(cut != NULL);
	EQ(ftruncate(fd, 0), 0);
	sge = (struct ibv_sge){ 0, 100, cut->lkey };
	wr.wr_id = 8;
	EQ(ibv_post_recv(a.qp, &wr, &bad), 0);
	post_send(&b, &a, 9, 0, 100);
	received(&a, 8, 100);
	sent(&b, 9);
	close(fd);
	EQ(ibv_destroy_qp(reader), 0);
	EQ(ibv_dereg_mr(cut), 0);
	EQ(ibv_dereg_mr(to_write), 0);
	EQ(ibv_dereg_mr(to_read), 0);
	munmap(mine, BYTES);
	close_side(&a);
	close_side(&b);
}

/* Verbs that only newer versions have. */
void newer_case(void)
{
#ifdef NEWEST
	struct side a, b;
	open_pair(&a, &b);
	uint64_t speed;
	EQ(ibv_query_port_speed(a.ctx, 1, &speed), 0);
	EQ(speed, 1000);
	TRUE(ibv_query_port_speed(a.ctx, 2, &speed) != 0);
	struct efadv_mr_attr attr = { .ic_id_validity = 7 };
	EQ(efadv_query_mr(a.mr, &attr, sizeof(attr)), 0);
	EQ(attr.ic_id_validity, 0);
	/* Regions of an address, with another one at the device, and of a file. */
	int fd = memory_file(8192);
	char *file = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	TRUE(file != MAP_FAILED);
	struct ibv_mr_init_attr of_address = { .length = 4096, .access = IBV_ACCESS_LOCAL_WRITE,
					       .comp_mask = IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_IOVA,
					       .addr = a.memory, .iova = 0x5000 };
	struct ibv_mr_init_attr of_file = { .length = 4096, .access = IBV_ACCESS_LOCAL_WRITE,
					    .comp_mask = IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET | IBV_REG_MR_MASK_IOVA,
					    .fd = fd, .fd_offset = 4096, .iova = 0x9000 };
	struct ibv_mr *from = ibv_reg_mr_ex(a.pd, &of_address), *to = ibv_reg_mr_ex(b.pd, &of_file);
	TRUE(from && to);
	fill(&a, 0, 500, 3);
	struct ibv_sge sge = { 0x9000, 500, to->lkey };
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad;
	EQ(ibv_post_recv(b.qp, &wr, &bad), 0);
	struct request r;
	prepare(&r, &a, &b, 2, 0, 500);
	r.sge[0] = (struct ibv_sge){ 0x5000, 500, from->lkey };
	post(&a, &r);
	received(&b, 1, 500);
	sent(&a, 2);
	EQ(memcmp(a.memory, file + 4096, 500), 0);
	of_file.fd_offset = 8192;
	NO(ibv_reg_mr_ex(b.pd, &of_file), EINVAL);
	EQ(ibv_dereg_mr(from), 0);
	EQ(ibv_dereg_mr(to), 0);
	munmap(file, 8192);
	close(fd);
	close_side(&a);
	close_side(&b);
#else
	SKIP("rdma-core 44 has neither ibv_query_port_speed, ibv_reg_mr_ex nor efadv_query_mr");
#endif
}

#ifdef NEWEST
/* Rings of the device's completion queues, by SOFTEFA_LAYOUT. */
static size_t sub_cqs(void)
{
	return expects("SOFTEFA_LAYOUT", "sub_cqs=4") ? 4 : expects("SOFTEFA_LAYOUT", "sub_cqs=2") ? 2 : 1;
}

static struct ibv_cq *create_in(struct side *s, struct ibv_comp_channel *channel, uint8_t *buffer, int fd, uint64_t offset, uint64_t length)
{
	struct ibv_cq_init_attr_ex init = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS, .channel = channel };
	struct efadv_cq_init_attr efa = { .flags = EFADV_CQ_INIT_FLAGS_EXT_MEM_DMABUF };
	efa.ext_mem_dmabuf.buffer = buffer;
	efa.ext_mem_dmabuf.fd = fd;
	efa.ext_mem_dmabuf.offset = offset;
	efa.ext_mem_dmabuf.length = length;
	struct ibv_cq_ex *cq = efadv_create_cq(s->ctx, &init, &efa, sizeof(efa));
	return cq ? ibv_cq_ex_to_cq(cq) : NULL;
}
#endif

/* A completion queue in memory of the program's, by a file. */
void external_case(void)
{
#ifdef NEWEST
	enum { BYTES = 3 * 4096, AT = 4096 - 64 };
	const size_t length = 16 * 32 * sub_cqs();
	struct side a, b;
	open_pair(&a, &b);
	struct side given = a;
	int fd = memory_file(BYTES);
	uint8_t *mine = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	TRUE(mine != MAP_FAILED);
	TRUE((given.channel = ibv_create_comp_channel(a.ctx)) != NULL);
	NO(create_in(&a, NULL, mine, -1, 0, BYTES), EINVAL); /* libibverbs leaves such a file out */
	NO(create_in(&a, NULL, mine, 999, 0, BYTES), EBADF);
	NO(create_in(&a, NULL, mine, fd, 0, BYTES + 1), EINVAL);
	NO(create_in(&a, NULL, mine, fd, BYTES, 32), EINVAL);
	NO(create_in(&a, NULL, mine, fd, 0, length - 1), EINVAL);
	NO(create_in(&a, NULL, mine, fd, 8, BYTES - 8), EINVAL);
	/* The device writes its entries and no other byte, round after round; a channel tells of them. */
	memset(mine, 0xaa, BYTES);
	memset(mine + AT, 0, length);
	TRUE((given.send_cq = create_in(&given, given.channel, mine + AT, fd, AT, length)) != NULL);
	TRUE((given.qp = create_qp(&given, 1)) != NULL);
	bring_up(given.qp, 7);
	for (int i = 0; i < 200; i++) {
		struct ibv_cq *cq;
		void *context;
		fill(&a, 0, 64, i);
		EQ(ibv_req_notify_cq(given.send_cq, 0), 0);
		post_recv(&b, i, 4096, 64);
		post_send(&given, &b, i, 0, 64);
		struct pollfd pollfd = { .fd = given.channel->fd, .events = POLLIN };
		EQ(poll(&pollfd, 1, 5000), 1);
		EQ(ibv_get_cq_event(given.channel, &cq, &context), 0);
		TRUE(cq == given.send_cq);
		ibv_ack_cq_events(cq, 1);
		sent(&given, i);
		received(&b, i, 64);
		check(&b, 4096, 64, i);
	}
	for (size_t i = 0; i < BYTES; i++)
		if (i < AT || i >= AT + length)
			EQ(mine[i], 0xaa);
	/* Its owner cuts the file off: completions are lost, and nobody ends. Another queue goes on. */
	EQ(ftruncate(fd, 0), 0);
	post_recv(&b, 1000, 4096, 64);
	post_send(&given, &b, 1001, 0, 64);
	received(&b, 1000, 64);
	post_recv(&b, 1002, 4096, 64);
	post_send(&a, &b, 1003, 0, 64);
	received(&b, 1002, 64);
	sent(&a, 1003);
	EQ(ibv_destroy_qp(given.qp), 0);
	EQ(ibv_destroy_cq(given.send_cq), 0);
	EQ(ibv_destroy_comp_channel(given.channel), 0);
	munmap(mine, BYTES);
	close(fd);
	close_side(&a);
	close_side(&b);
#else
	SKIP("libefa 44 makes no completion queue in memory of the program's");
#endif
}

/* Both forms by the kernel's interface itself, of which libefa 44 knows neither and no version the one by an address. */
static uint32_t create_by_ioctl(struct ibv_context *ctx, void *address, int fd, uint64_t offset)
{
	enum { VA = 8, LENGTH, FD, OFFSET, UHW_IN = 0x1000 }; /* those that the headers of 44 do not have */
	struct {
		uint32_t mask, entry_size;
		uint16_t sub_cqs;
		uint8_t flags, reserved[5];
	} driver = { .entry_size = 16, .sub_cqs = 1 };
	uint32_t entries = 0;
	struct {
		struct ib_uverbs_ioctl_hdr header;
		struct ib_uverbs_attr attrs[9];
	} call = { .header = { .object_id = UVERBS_OBJECT_CQ, .method_id = UVERBS_METHOD_CQ_CREATE, .driver_id = RDMA_DRIVER_EFA } };
	struct ib_uverbs_attr attrs[] = {
		{ .attr_id = UVERBS_ATTR_CREATE_CQ_HANDLE },
		{ .attr_id = UVERBS_ATTR_CREATE_CQ_CQE, .len = 4, .data = 16 },
		{ .attr_id = UVERBS_ATTR_CREATE_CQ_USER_HANDLE, .len = 8, .data = 1 },
		{ .attr_id = UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, .len = 4 },
		{ .attr_id = UVERBS_ATTR_CREATE_CQ_RESP_CQE, .len = 4, .data = (uintptr_t)&entries },
		{ .attr_id = UHW_IN, .len = sizeof(driver), .data = (uintptr_t)&driver },
		{ .attr_id = LENGTH, .len = 8, .data = 16 * 16 },
		{ .attr_id = address ? VA : FD, .len = address ? 8 : 0, .data = address ? (uintptr_t)address : (uint64_t)fd },
		{ .attr_id = OFFSET, .len = 8, .data = offset },
	};
	call.header.num_attrs = address ? 8 : 9;
	call.header.length = sizeof(call.header) + call.header.num_attrs * sizeof(*attrs);
	for (int i = 0; i < call.header.num_attrs; i++) {
		call.attrs[i] = attrs[i];
		call.attrs[i].flags = UVERBS_ATTR_F_MANDATORY;
	}
	EQ(ioctl(ctx->cmd_fd, RDMA_VERBS_IOCTL, &call), 0);
	EQ(entries, 16);
	return call.attrs[0].data;
}

static void destroy_by_ioctl(struct ibv_context *ctx, uint32_t number)
{
	uint64_t events = 0;
	struct {
		struct ib_uverbs_ioctl_hdr header;
		struct ib_uverbs_attr attrs[2];
	} call = { .header = { .length = sizeof(call), .object_id = UVERBS_OBJECT_CQ, .method_id = UVERBS_METHOD_CQ_DESTROY,
			       .driver_id = RDMA_DRIVER_EFA, .num_attrs = 2 } };
	call.attrs[0] = (struct ib_uverbs_attr){ .flags = UVERBS_ATTR_F_MANDATORY, .data = number };
	call.attrs[1] = (struct ib_uverbs_attr){ .attr_id = 1, .len = 8, .flags = UVERBS_ATTR_F_MANDATORY, .data = (uintptr_t)&events };
	EQ(ioctl(ctx->cmd_fd, RDMA_VERBS_IOCTL, &call), 0);
}

void address_case(void)
{
	struct side a, b;
	open_pair(&a, &b);
	static uint64_t memory[16 * 16 / 8] __attribute__((aligned(64)));
	int fd = memory_file(8192);
	char *file = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	TRUE(file != MAP_FAILED);
	for (int by_file = 0; by_file < 2; by_file++) {
		uint32_t number = create_by_ioctl(a.ctx, by_file ? NULL : memory, fd, 4096 + 64);
		/* A queue pair over it: libefa passes the number of its own queue on. */
		struct side given = a;
		uint32_t own = a.send_cq->handle;
		a.send_cq->handle = number;
		TRUE((given.qp = create_qp(&given, 1)) != NULL);
		a.send_cq->handle = own;
		bring_up(given.qp, 7);
		struct ring cq = { by_file ? (volatile uint8_t *)file + 4096 + 64 : (volatile uint8_t *)memory, 16, 16, 0, NULL };
		/* As many as libefa takes without hearing of one. */
		for (int i = 0; i < DEPTH; i++) {
			post_recv(&b, i, 4096, 64);
			post_send(&given, &b, i, 0, 64);
			const uint8_t *entry = next_entry(&cq);
			EQ(entry[2], 0);
			EQ(entry[4] | entry[5] << 8, given.qp->qp_num);
			received(&b, i, 64);
		}
		EQ(ibv_destroy_qp(given.qp), 0);
		destroy_by_ioctl(a.ctx, number);
	}
	munmap(file, 8192);
	close(fd);
	close_side(&a);
	close_side(&b);
}
