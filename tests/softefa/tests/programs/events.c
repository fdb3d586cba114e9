/* Events, forks, and programs that just end. */
#include "common.h"

static int readable(int fd, int timeout)
{
	struct pollfd pollfd = { .fd = fd, .events = POLLIN };
	return poll(&pollfd, 1, timeout);
}

void events_case(void)
{
	struct side s;
	open_side(&s, 0, 1);
	s.ah = resolve(&s, s.gid);
	struct ibv_cq *cq;
	void *context;
	EQ(readable(s.channel->fd, 20), 0);
	/* Not armed: no event. */
	post_recv(&s, 1, 0, 64);
	post_send(&s, &s, 2, 0, 64);
	EQ(completion(s.recv_cq).wr_id, 1);
	EQ(completion(s.send_cq).wr_id, 2);
	while (readable(s.channel->fd, 20)) {
		/* At most one of each that was not asked for. */
		EQ(ibv_get_cq_event(s.channel, &cq, &context), 0);
		ibv_ack_cq_events(cq, 1);
	}
	/* Armed: one, of the right queue, however the file is waited for. */
	EQ(ibv_req_notify_cq(s.recv_cq, 0), 0);
	EQ(readable(s.channel->fd, 20), 0);
	post_recv(&s, 3, 0, 64);
	post_send(&s, &s, 4, 0, 64);
	EQ(readable(s.channel->fd, 5000), 1);
	EQ(ibv_get_cq_event(s.channel, &cq, &context), 0);
	TRUE(cq == s.recv_cq || cq == s.send_cq);
	ibv_ack_cq_events(cq, 1);
	EQ(completion(s.recv_cq).wr_id, 3);
	EQ(completion(s.send_cq).wr_id, 4);
	/* O_NONBLOCK is the program's. */
	fcntl(s.channel->fd, F_SETFL, fcntl(s.channel->fd, F_GETFL) | O_NONBLOCK);
	while (readable(s.channel->fd, 20)) {
		EQ(ibv_get_cq_event(s.channel, &cq, &context), 0);
		ibv_ack_cq_events(cq, 1);
	}
	FAILS(ibv_get_cq_event(s.channel, &cq, &context), EAGAIN);
	/* A channel in use is busy; solicited events EFA has none. */
	FAILS(ibv_destroy_comp_channel(s.channel), EBUSY);
	FAILS(ibv_req_notify_cq(s.recv_cq, 1), EOPNOTSUPP);
	close_side(&s);
}

void wakeups_case(void)
{
	const int MESSAGES = getenv("WAKEUPS") ? atoi(getenv("WAKEUPS")) : 5000;
	struct side s;
	open_side(&s, 0, 1);
	s.ah = resolve(&s, s.gid);
	int received = 0, sent = 0, posted = 0;
	unsigned events = 0;
	struct ibv_wc wc;
	EQ(ibv_req_notify_cq(s.recv_cq, 0), 0);
	EQ(ibv_req_notify_cq(s.send_cq, 0), 0);
	while (received < MESSAGES || sent < MESSAGES) {
		/* Bursts of one to eight, so that arming and polling meet arrivals in every order. */
		for (int i = 0; i <= posted % 8 && posted < MESSAGES && posted - received < DEPTH && posted - sent < DEPTH; i++) {
			post_recv(&s, posted, 0, 64);
			post_send(&s, &s, posted++, 64, 64);
		}
		struct ibv_cq *cq;
		void *context;
		EQ(readable(s.channel->fd, 5000), 1); /* else a wake-up was lost */
		EQ(ibv_get_cq_event(s.channel, &cq, &context), 0);
		ibv_ack_cq_events(cq, 1);
		events++;
		EQ(ibv_req_notify_cq(cq, 0), 0);
		while (ibv_poll_cq(cq, 1, &wc) > 0) {
			EQ(wc.status, IBV_WC_SUCCESS);
			*(cq == s.recv_cq ? &received : &sent) += 1;
		}
	}
	printf("figure: %d messages by %u events, no wake-up lost\n", MESSAGES, events);
	close_side(&s);
}

static volatile sig_atomic_t signals, elsewhere;

static void signalled(int signal)
{
	(void)signal;
	signals++;
	/* The library's thread takes none: a handler may count on the threads that its program has. */
	if (syscall(SYS_gettid) != getpid())
		elsewhere++;
}

void signals_case(void)
{
	const int MESSAGES = 2000;
	struct side s;
	open_side(&s, 0, 1);
	s.ah = resolve(&s, s.gid);
	struct sigaction action = { .sa_handler = signalled };
	EQ(sigaction(SIGUSR1, &action, NULL), 0);
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
	struct itimerspec often = { { 0, 300000 }, { 0, 300000 } };
	timer_t timer;
	EQ(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
	EQ(timer_settime(timer, 0, &often, NULL), 0);
	struct ibv_cq *cq;
	void *context;
	int interrupted = 0;
	/* What it does has its effect whenever a signal comes; what waits says EINTR, as with a kernel. */
	for (int i = 0; i < MESSAGES; i++) {
		EQ(ibv_req_notify_cq(s.recv_cq, 0), 0);
		post_recv(&s, 2 * i, 0, 64);
		post_send(&s, &s, 2 * i + 1, 64, 64);
		while (ibv_get_cq_event(s.channel, &cq, &context) != 0) {
			EQ(errno, EINTR);
			interrupted++;
		}
		ibv_ack_cq_events(cq, 1);
		EQ(completion(s.recv_cq).wr_id, 2 * i);
		EQ(completion(s.send_cq).wr_id, 2 * i + 1);
		if (i % 100 == 0) {
			struct ibv_mr *mr = ibv_reg_mr(s.pd, s.memory, MEMORY, IBV_ACCESS_LOCAL_WRITE);
			TRUE(mr);
			EQ(ibv_dereg_mr(mr), 0);
		}
	}
	while (readable(s.channel->fd, 0) == 1) {
		EQ(ibv_get_cq_event(s.channel, &cq, &context), 0);
		ibv_ack_cq_events(cq, 1);
	}
	FAILS(ibv_get_cq_event(s.channel, &cq, &context), EINTR);
	EQ(timer_delete(timer), 0);
	TRUE(signals > 0);
	EQ(elsewhere, 0);
	printf("figure: %d messages by events, %d signals, %d waits interrupted\n", MESSAGES, (int)signals, interrupted);
	close_side(&s);
}

void drained_case(void)
{
	struct side s;
	open_side(&s, 0, 0);
	s.ah = resolve(&s, s.gid);
	/* It waits for a receive: in SQD it is not drained. */
	post_send(&s, &s, 1, 0, 64);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	struct ibv_qp_init_attr init;
	EQ(ibv_modify_qp(s.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	EQ(readable(s.ctx->async_fd, 20), 0);
	EQ(ibv_query_qp(s.qp, &attr, IBV_QP_STATE, &init), 0);
	EQ(attr.qp_state, IBV_QPS_SQD);
	EQ(attr.sq_draining, 1);
	/* Asked for twice, told once. */
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS };
	EQ(ibv_modify_qp(s.qp, &attr, IBV_QP_STATE), 0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	EQ(ibv_modify_qp(s.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	post_recv(&s, 2, 0, 64);
	EQ(completion(s.send_cq).wr_id, 1);
	struct ibv_async_event event;
	EQ(readable(s.ctx->async_fd, 5000), 1);
	EQ(ibv_get_async_event(s.ctx, &event), 0);
	EQ(event.event_type, IBV_EVENT_SQ_DRAINED);
	TRUE(event.element.qp == s.qp);
	ibv_ack_async_event(&event);
	EQ(readable(s.ctx->async_fd, 20), 0);
	EQ(ibv_query_qp(s.qp, &attr, IBV_QP_STATE, &init), 0);
	EQ(attr.sq_draining, 0);
	/* A second one, which nobody reads: it goes with the queue pair. */
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS };
	EQ(ibv_modify_qp(s.qp, &attr, IBV_QP_STATE), 0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };
	EQ(ibv_modify_qp(s.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	EQ(readable(s.ctx->async_fd, 5000), 1);
	EQ(completion(s.recv_cq).wr_id, 2);
	EQ(ibv_destroy_qp(s.qp), 0);
	EQ(readable(s.ctx->async_fd, 20), 0);
	TRUE((s.qp = create_qp(&s, 1)) != NULL);
	close_side(&s);
}

void unread_case(void)
{
	struct side s;
	open_side(&s, 0, 1);
	s.ah = resolve(&s, s.gid);
	EQ(ibv_req_notify_cq(s.recv_cq, 0), 0);
	EQ(ibv_req_notify_cq(s.send_cq, 0), 0);
	post_recv(&s, 1, 0, 64);
	post_send(&s, &s, 2, 0, 64);
	EQ(completion(s.recv_cq).wr_id, 1);
	EQ(completion(s.send_cq).wr_id, 2);
	EQ(readable(s.channel->fd, 5000), 1);
	/* Events that were not read do not keep their queue from going, and go along. */
	EQ(ibv_destroy_qp(s.qp), 0);
	EQ(ibv_destroy_cq(s.recv_cq), 0);
	EQ(ibv_destroy_cq(s.send_cq), 0);
	EQ(readable(s.channel->fd, 20), 0);
	EQ(ibv_destroy_comp_channel(s.channel), 0);
	EQ(ibv_close_device(s.ctx), 0);
}

static void exchange(struct side *s)
{
	fill(s, 0, 64, 5);
	post_recv(s, 1, 1024, 64);
	post_send(s, s, 2, 0, 64);
	EQ(completion(s->recv_cq).wr_id, 1);
	EQ(completion(s->send_cq).wr_id, 2);
	check(s, 1024, 64, 5);
}

void fork_case(void)
{
	EQ(ibv_fork_init(), 0);
	struct side s;
	open_side(&s, 0, 0);
	s.ah = resolve(&s, s.gid);
	exchange(&s);
	pid_t child = fork();
	if (child == 0) {
		/* The child has devices of its own, and its parent's objects are not among them. */
		struct ibv_port_attr port;
		TRUE(ibv_query_port(s.ctx, 1, &port) != 0);
		struct side own;
		open_side(&own, 0, 0);
		own.ah = resolve(&own, own.gid);
		exchange(&own);
		close_side(&own);
		exit(0);
	}
	for (int i = 0; i < 100; i++)
		exchange(&s);
	int status;
	EQ(waitpid(child, &status, 0), child);
	EQ(status, 0);
	exchange(&s);
	close_side(&s);
}

static int over;

static void *look(void *none)
{
	while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
		access("/sys/class/infiniband/efa_0", F_OK);
		open("/dev/infiniband/uverbs9", O_RDWR);
	}
	return none;
}

/* Other threads are in the library's calls whenever this one forks: what they hold, no child waits for. */
void busy_case(void)
{
	pthread_t threads[3];
	for (int i = 0; i < 3; i++)
		EQ(pthread_create(&threads[i], NULL, look, NULL), 0);
	/* As often as there is time for on a machine that has much else to do. */
	time_t enough = time(NULL) + 25;
	for (int i = 0; i < 300 && (i < 20 || time(NULL) < enough); i++) {
		pid_t child = fork();
		if (child == 0)
			_exit(access("/sys/class/infiniband/efa_0", F_OK) != 0);
		int status = -1;
		for (int ms = 0; waitpid(child, &status, WNOHANG) == 0; ms++) {
			if (ms == 10000)
				kill(child, SIGKILL);
			usleep(1000);
		}
		EQ(status, 0);
	}
	__atomic_store_n(&over, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 3; i++)
		EQ(pthread_join(threads[i], NULL), 0);
}

void vfork_case(void)
{
	struct side s;
	open_side(&s, 0, 0);
	s.ah = resolve(&s, s.gid);
	int fd = s.ctx->cmd_fd, status;
	pid_t child = vfork();
	if (child == 0) {
		close(fd);
		_exit(0);
	}
	EQ(waitpid(child, &status, 0), child);
	EQ(status, 0);
	exchange(&s);
	child = _Fork();
	if (child == 0) {
		/* Nothing is its own, and nobody ends. */
		struct ibv_port_attr port;
		_exit(ibv_query_port(s.ctx, 1, &port) == 0 || open("/dev/infiniband/uverbs0", O_RDWR) >= 0);
	}
	EQ(waitpid(child, &status, 0), child);
	EQ(status, 0);
	exchange(&s);
	close_side(&s);
}

void abandon_case(void)
{
	struct side a, b;
	open_pair(&a, &b);
	post_send(&a, &b, 1, 0, 64);
	/* Closed with everything alive and a message in flight: as a kernel does, it is cleaned up. */
	EQ(ibv_close_device(a.ctx), 0);
	usleep(1000);
	struct side c;
	open_side(&c, 0, 0);
	c.ah = resolve(&c, c.gid);
	exchange(&c);
	/* Whatever the environment says by then, the files go. */
	setenv("TMPDIR", "/nowhere", 1);
	/* And b is left to the end of the process. */
}
