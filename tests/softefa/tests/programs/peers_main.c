/* Runs the case that is named, with a number where it takes one. */
#include <sys/stat.h>

#include "peers.h"

static int number;

static void pattern(char *bytes, size_t length, unsigned seed)
{
	for (size_t i = 0; i < length; i++)
		bytes[i] = (char)(seed * 31 + i * 7 + i / 251);
}

static void same(const char *bytes, size_t length, unsigned seed)
{
	for (size_t i = 0; i < length; i++)
		if (bytes[i] != (char)(seed * 31 + i * 7 + i / 251)) {
			fprintf(stderr, "byte %zu of %zu is wrong\n", i, length);
			exit(1);
		}
}

/* SENDs of all lengths, of 0 to the longest; RDMA of 0 to the longest. Contents are checked. */
static void contents(void)
{
	struct peer p;
	struct ibv_port_attr port;
	struct efadv_device_attr efa;
	struct ibv_context *ctx = open_device(0);
	EQ(ibv_query_port(ctx, 1, &port), 0);
	EQ(efadv_query_device(ctx, &efa, sizeof(efa)), 0);
	EQ(ibv_close_device(ctx), 0);
	uint32_t longest = port.max_msg_sz, rdma_longest = efa.max_rdma_size;
	open_peer(&p, 0, 16, 2 * (size_t)rdma_longest + 8, 0);
	tell(&p, self);
	meet(&p, 2);
	int other = 1 - self;
	uint32_t lengths[] = { 0, 1, 31, 32, 33, 63, 64, 1000, 4095, 4096, 4097, longest - 1, longest };
	char *in = p.shared, *out = p.shared + rdma_longest;
	for (unsigned i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		/* Both at the same time. */
		memset(in, 0, longest);
		pattern(out, lengths[i], 2 * i + self);
		receive(&p, 1, in, longest);
		send_to(&p, other, 2, out, lengths[i]);
		for (int n = 0; n < 2; n++) {
			struct ibv_wc wc = next(p.s.send_cq, p.s.recv_cq);
			EQ(wc.status, IBV_WC_SUCCESS);
			if (wc.wr_id == 1)
				EQ(wc.byte_len, lengths[i]);
		}
		same(in, lengths[i], 2 * i + other);
	}
	/* Too long by one: refused here, and nothing arrives. */
	send_to(&p, other, 3, out, longest + 1);
	EQ(next(p.s.send_cq, NULL).status, IBV_WC_LOC_LEN_ERR);
	barrier(2);
	uint32_t parts[] = { 0, 1, 4095, 32767, 32768, 32769, 65536, 1000003, rdma_longest - 1, rdma_longest };
	for (unsigned i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		for (int op = READ; op <= (HAS_WRITE ? WRITE_IMM : READ); op++) {
			unsigned seed = 100 + 7 * i + op;
			uint32_t length = parts[i];
			/* One side asks, the other is asked: their turns alternate. */
			int asks = (i + op) % 2 == (unsigned)self;
			char *theirs = p.shared + rdma_longest + 5;
			if (!asks) {
				memset(theirs, 0, length);
				if (op == READ)
					pattern(theirs, length, seed);
				if (op == WRITE_IMM)
					receive(&p, 9, p.shared, 0);
			} else {
				memset(p.shared, 0, length);
				if (op != READ)
					pattern(p.shared, length, seed);
			}
			barrier(2);
			if (asks) {
				rdma(&p, op, other, 4, 0, rdma_longest + 5, length);
				struct ibv_wc wc = next(p.s.send_cq, NULL);
				EQ(wc.status, IBV_WC_SUCCESS);
				EQ(wc.wr_id, 4);
				if (op == READ)
					same(p.shared, length, seed);
			} else if (op == WRITE_IMM) {
				struct ibv_wc wc = next(p.s.recv_cq, NULL);
				EQ(wc.status, IBV_WC_SUCCESS);
				EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
				EQ(wc.byte_len, length);
				EQ(be32toh(wc.imm_data), length);
				same(theirs, length, seed);
			}
			barrier(2);
			if (!asks && op == WRITE)
				same(theirs, length, seed);
		}
	rdma(&p, READ, other, 5, 0, rdma_longest, rdma_longest + 1);
	EQ(next(p.s.send_cq, NULL).status, IBV_WC_LOC_LEN_ERR);
	close_peer(&p);
}

static void run_contents(void)
{
	processes(2, contents, -1);
}

/* 0 moves much to and from 1, which is killed meanwhile; then 0 and 2 go on. */
static void survivor(void)
{
	enum { LENGTH = 1 << 20, DEEP = 8 };
	struct peer p;
	open_peer(&p, 0, 64, 2 * LENGTH, 0);
	tell(&p, self);
	meet(&p, 3);
	if (self == 1) {
		/* A child that outlives it has none of its sockets. */
		if (fork() == 0) {
			for (double end = seconds() + 60; !__atomic_load_n(&board->over, __ATOMIC_SEQ_CST); usleep(1000))
				TRUE(seconds() < end);
			_exit(0);
		}
		for (;;) {
			/* It moves as much itself, until it ends. */
			rdma(&p, READ, 0, 1, 0, LENGTH, LENGTH);
			EQ(next(p.s.send_cq, NULL).status, IBV_WC_SUCCESS);
			receive(&p, 2, p.shared, 64);
		}
	}
	if (self == 0) {
		int open = 0, failed = 0;
		while (!failed || open > 0) {
			for (; !failed && open < DEEP; open++) {
				int op = HAS_WRITE && open % 2 ? WRITE : READ;
				if (open % 4 == 3)
					send_to(&p, 1, 3, p.shared, 64);
				else
					rdma(&p, op, 1, 3, 0, LENGTH, LENGTH);
			}
			struct ibv_wc wc = next(p.s.send_cq, NULL);
			open--;
			if (wc.status == IBV_WC_SUCCESS) {
				__atomic_add_fetch(&board->moving, 1, __ATOMIC_SEQ_CST);
				continue;
			}
			/* Gone, or just not answering: nothing else, and soon. */
			TRUE(wc.vendor_err == 9 || wc.vendor_err == 13);
			failed = 1;
		}
		double took = seconds() - board->killed;
		printf("figure: all that waits for a killed process ended after %.3f s\n", took);
		TRUE(took < 2);
		/* Again, to one that is known to be gone: with 13, at once. */
		double begin = seconds();
		send_to(&p, 1, 4, p.shared, 64);
		EQ(next(p.s.send_cq, NULL).vendor_err, 13);
		TRUE(seconds() - begin < 2);
		__atomic_store_n(&board->over, 1, __ATOMIC_SEQ_CST);
	}
	/* A third one, before and after. */
	int other = 2 - self;
	for (int i = 0; i < 100; i++) {
		receive(&p, 7, p.shared, 4096);
		pattern(p.shared + LENGTH, 4096, 2 * i + self);
		send_to(&p, other, 8, p.shared + LENGTH, 4096);
		for (int n = 0; n < 2; n++)
			EQ(next(p.s.send_cq, p.s.recv_cq).status, IBV_WC_SUCCESS);
		same(p.shared, 4096, 2 * i + other);
	}
	close_peer(&p);
}

static void run_kill(void)
{
	processes(3, survivor, 1);
}

/* Everybody to everybody, some messages each, as hosts of `devices` devices. */
static void all_to_all(int devices)
{
	enum { MESSAGES = 4, LENGTH = 2048, DEEP = 64 };
	static struct peer peers[2];
	int all = devices * count;
	for (int d = 0; d < devices; d++) {
		open_peer(&peers[d], d, 2 * DEEP, 2 * DEEP * LENGTH, 0);
		tell(&peers[d], devices * self + d);
	}
	for (int d = 0; d < devices; d++)
		meet(&peers[d], all);
	for (int d = 0; d < devices; d++)
		for (int i = 0; i < DEEP; i++)
			receive(&peers[d], i, peers[d].shared + i * LENGTH, LENGTH);
	int expected = MESSAGES * (all - 1), sent[2] = { 0 }, free_count[2] = { 0 };
	static int free_places[2][DEEP];
	for (int d = 0; d < devices; d++)
		while (free_count[d] < DEEP)
			free_places[d][free_count[d]] = free_count[d], free_count[d]++;
	static unsigned char from[2][2 * MOST];
	double end = seconds() + 90;
	for (int left = 2 * devices * expected; left > 0;) {
		int found = 0;
		for (int d = 0; d < devices; d++) {
			struct peer *p = &peers[d];
			int me = devices * self + d;
			/* A place is free once its message is done, in whichever order they are. */
			for (; sent[d] < expected && free_count[d] > 0; sent[d]++) {
				int to = (me + 1 + sent[d] / MESSAGES) % all, place = free_places[d][--free_count[d]];
				char *bytes = p->shared + (DEEP + place) * LENGTH;
				uint32_t length = 16 + (sent[d] * 37 + me * 11) % (LENGTH - 16);
				pattern(bytes, length, me);
				memcpy(bytes, &me, sizeof(me));
				send_to(p, to, place, bytes, length);
			}
			struct ibv_wc wc;
			while (ibv_poll_cq(p->s.send_cq, 1, &wc) > 0) {
				EQ(wc.status, IBV_WC_SUCCESS);
				free_places[d][free_count[d]++] = wc.wr_id;
				left--, found++;
			}
			while (ibv_poll_cq(p->s.recv_cq, 1, &wc) > 0) {
				EQ(wc.status, IBV_WC_SUCCESS);
				char *bytes = p->shared + wc.wr_id * LENGTH;
				int who;
				memcpy(&who, bytes, sizeof(who));
				TRUE(who >= 0 && who < all && who != me);
				EQ(wc.src_qp, board->addresses[who].qpn);
				pattern(bytes, sizeof(who), who);
				same(bytes, wc.byte_len, who);
				from[d][who]++;
				receive(p, wc.wr_id, bytes, LENGTH);
				left--, found++;
			}
		}
		if (!found) {
			TRUE(seconds() < end);
			usleep(200);
		}
	}
	for (int d = 0; d < devices; d++)
		for (int i = 0; i < all; i++)
			EQ(from[d][i], i == devices * self + d ? 0 : MESSAGES);
	barrier(count);
	for (int d = 0; d < devices; d++)
		close_peer(&peers[d]);
}

static void one_device(void)
{
	all_to_all(1);
}

static void two_devices(void)
{
	all_to_all(2);
}

static void run_many(void)
{
	double begin = seconds();
	processes(number, one_device, -1);
	printf("figure: %d processes, each to each: %.1f s\n", number, seconds() - begin);
}

static void run_hosts(void)
{
	processes(2, two_devices, -1);
}

/* Messages both ways in bursts; each side sleeps until its channel says that something is there. */
static void eventful(void)
{
	enum { DEEP = 16, LENGTH = 64 };
	struct peer p;
	open_peer(&p, 0, 4 * DEEP, 65536, 1);
	tell(&p, self);
	meet(&p, 2);
	int messages = number / 2, posted = 0, sent = 0, received = 0, events = 0;
	EQ(ibv_req_notify_cq(p.s.recv_cq, 0), 0);
	EQ(ibv_req_notify_cq(p.s.send_cq, 0), 0);
	for (int i = 0; i < 2 * DEEP; i++)
		receive(&p, i, p.shared, LENGTH);
	while (sent < messages || received < messages) {
		for (int i = 0; i <= posted % 8 && posted < messages && posted - sent < DEEP && posted - received < DEEP; i++)
			send_to(&p, 1 - self, posted++, p.shared + LENGTH, LENGTH);
		struct pollfd pollfd = { .fd = p.s.channel->fd, .events = POLLIN };
		EQ(poll(&pollfd, 1, 20000), 1); /* else a wake-up was lost */
		struct ibv_cq *cq;
		void *context;
		EQ(ibv_get_cq_event(p.s.channel, &cq, &context), 0);
		ibv_ack_cq_events(cq, 1);
		events++;
		EQ(ibv_req_notify_cq(cq, 0), 0);
		struct ibv_wc wc;
		while (ibv_poll_cq(cq, 1, &wc) > 0) {
			EQ(wc.status, IBV_WC_SUCCESS);
			if (cq == p.s.recv_cq)
				receive(&p, received++, p.shared, LENGTH);
			else
				sent++;
		}
	}
	if (self == 0)
		printf("figure: %d messages between two processes by events, %d of them here, no wake-up lost\n", 2 * messages, events);
	barrier(2);
	close_peer(&p);
}

static void run_events(void)
{
	processes(2, eventful, -1);
}

static void transfers(void)
{
	enum { MIB = 1 << 20, DEEP = 16 };
	struct peer p;
	open_peer(&p, 0, 64, DEEP * (size_t)MIB, 0);
	memset(p.shared, 1 + self, p.length);
	tell(&p, self);
	meet(&p, 2);
	if (self == 0) {
		int op = HAS_WRITE ? WRITE : READ;
		uint32_t lengths[] = { MIB, 65536 };
		for (int i = 0; i < 2; i++) {
			uint32_t length = lengths[i], all = (512u << 20) / length;
			/* The same bytes, copied here: by this process alone, while the other waits. */
			char *copy = mmap(NULL, p.length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
			double begin = seconds();
			for (uint32_t n = 0; n < all; n++) {
				size_t at = n % DEEP * (size_t)length;
				memcpy(copy + at, p.shared + at, length);
				__asm__ volatile("" : : "r"(copy) : "memory");
			}
			double copied = all * (double)length / (seconds() - begin) * 1e-9;
			munmap(copy, p.length);
			begin = seconds();
			for (uint32_t done = 0, posted = 0; done < all; done++) {
				for (; posted < all && posted - done < DEEP; posted++)
					rdma(&p, op, 1, posted, posted % DEEP * (size_t)length, posted % DEEP * (size_t)length, length);
				EQ(next(p.s.send_cq, NULL).status, IBV_WC_SUCCESS);
			}
			double moved = all * (double)length / (seconds() - begin) * 1e-9;
			printf("figure: %s of %u KiB between two processes: %.2f GB/s, %.2f of memcpy's %.2f GB/s\n",
			       op == WRITE ? "writes" : "reads", length / 1024, moved, moved / copied, copied);
		}
	}
	barrier(2);
	close_peer(&p);
}

static void run_bandwidth(void)
{
	processes(2, transfers, -1);
}

static int by_time(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void pingpong(void)
{
	enum { COUNT = 5001, LENGTH = 64, DEEP = 16 };
	static double times[COUNT];
	struct peer p;
	open_peer(&p, 0, 4 * DEEP, 65536, 0);
	tell(&p, self);
	meet(&p, 2);
	for (int i = 0; i < DEEP; i++)
		receive(&p, i, p.shared, LENGTH);
	barrier(2);
	for (int i = 0; i < COUNT; i++) {
		double begin = seconds();
		if (self == 0)
			send_to(&p, 1, 1, p.shared + LENGTH, LENGTH);
		EQ(next(p.s.recv_cq, NULL).status, IBV_WC_SUCCESS);
		receive(&p, 1, p.shared, LENGTH);
		if (self == 1)
			send_to(&p, 0, 1, p.shared + LENGTH, LENGTH);
		times[i] = (seconds() - begin) / 2 * 1e6;
		EQ(next(p.s.send_cq, NULL).status, IBV_WC_SUCCESS);
	}
	qsort(times, COUNT, sizeof(*times), by_time);
	if (self == 0)
		printf("figure: 64 bytes from process to process, half of there and back: %.1f us in the median, %.1f us in the 99th percentile\n",
		       times[COUNT / 2], times[COUNT * 99 / 100]);
	barrier(2);
	close_peer(&p);
}

static void run_pingpong(void)
{
	processes(2, pingpong, -1);
}

/* Who has a message may end at once: its sender hears that it arrived. */
static void last_words(void)
{
	struct peer p;
	open_peer(&p, 0, 16, 65536, 0);
	tell(&p, self);
	receive(&p, 1, p.shared, 64);
	meet(&p, 2);
	if (self == 0)
		send_to(&p, 1, 2, p.shared, 64);
	EQ(next(self == 0 ? p.s.send_cq : p.s.recv_cq, NULL).status, IBV_WC_SUCCESS);
}

static void run_last(void)
{
	for (int i = 0; i < number; i++)
		processes(2, last_words, -1);
}

/* Has its address until its input ends. */
static void run_claim(void)
{
	struct side a, b;
	char byte;
	int sockets = 0, others = 0;
	/* As a daemon does when it begins, all numbers, with the open device's own. What it did not open it cannot close: its
	   address stays its own. */
	open_device(0);
	for (int fd = 3; fd < 1024; fd++) {
		struct stat file;
		if (fstat(fd, &file) != 0)
			continue;
		if (S_ISSOCK(file.st_mode)) {
			FAILS(close(fd), EBADF);
			sockets++;
		} else {
			others += close(fd) == 0;
		}
	}
	TRUE(others > 0);
	/* And what it opens from then on works. */
	open_pair(&a, &b);
	post_recv(&b, 1, 0, 64);
	post_send(&a, &b, 2, 0, 64);
	EQ(completion(a.send_cq).status, IBV_WC_SUCCESS);
	EQ(completion(b.recv_cq).status, IBV_WC_SUCCESS);
	for (int fd = 3; fd < 1024; fd++) {
		struct stat file;
		sockets -= fstat(fd, &file) == 0 && S_ISSOCK(file.st_mode);
	}
	EQ(sockets, 0);
	printf("there\n");
	fflush(stdout);
	EQ(read(0, &byte, 1), 0);
	close_side(&a);
	close_side(&b);
}

static const struct {
	const char *name;
	void (*run)(void);
} CASES[] = {
	{ "contents", run_contents }, { "kill", run_kill },		{ "many", run_many },
	{ "hosts", run_hosts },       { "events", run_events },	{ "bandwidth", run_bandwidth },
	{ "pingpong", run_pingpong },  { "claim", run_claim },
	{ "last", run_last },
};

int main(int argc, char **argv)
{
	number = argc > 2 ? atoi(argv[2]) : 0;
	for (size_t i = 0; argc >= 2 && i < sizeof(CASES) / sizeof(*CASES); i++)
		if (!strcmp(CASES[i].name, argv[1])) {
			alarm(200);
			CASES[i].run();
			printf("done: %s\n", argv[1]);
			return 0;
		}
	fprintf(stderr, "no such case\n");
	return 2;
}
