/* Several processes: each is forked before it has a device, and is a host of its own. */
#pragma once
#include "common.h"

#define MOST 64

/* What one process tells the others. */
struct address {
	union ibv_gid gid;
	uint32_t qpn;
	uint32_t rkey;
	uint64_t memory;
};

/* What all of them see. */
struct board {
	struct address addresses[2 * MOST];
	unsigned told;	  /* addresses that are there */
	unsigned arrived; /* at barriers, in all */
	unsigned moving;  /* transfers done so far */
	double killed;	  /* when one of them was */
	int over;
};

extern struct board *board;
/* This process's number, and how many there are. */
extern int self, count;

/* One side with larger queues, and memory of its own choice that others may read, and write where libefa can. */
struct peer {
	struct side s;
	struct ibv_qp_ex *qp;
	struct ibv_ah *ahs[2 * MOST];
	char *shared;
	size_t length;
	struct ibv_mr *mr;
};

#ifdef NEWEST
#define HAS_WRITE 1
#else
#define HAS_WRITE 0
#endif

enum { READ, WRITE, WRITE_IMM };

double seconds(void);
/* Waits until all of `many` are here, which is always the same number. */
void barrier(unsigned many);
/* The nth device, with queues that deep, and so much memory that others reach. */
void open_peer(struct peer *p, int device, int depth, size_t length, int with_channel);
void close_peer(struct peer *p);
/* Tells the others where it is, as the nth of all. */
void tell(struct peer *p, int nth);
/* Waits for as many addresses, resolves each, and waits until all processes have. */
void meet(struct peer *p, int addresses);
void send_to(struct peer *p, int to, uint64_t id, void *bytes, uint32_t length);
void receive(struct peer *p, uint64_t id, void *bytes, uint32_t length);
/* Moves between its own memory and theirs, at the same offsets. */
void rdma(struct peer *p, int op, int to, uint64_t id, size_t from, size_t at, uint32_t length);
/* The next completion of either queue, for which it sleeps now and then, for as long as half a minute. */
struct ibv_wc next(struct ibv_cq *a, struct ibv_cq *b);
/* Runs `body` in so many processes, and sees that all end well, or are killed where `killed` says so. */
void processes(int many, void (*body)(void), int killed);
