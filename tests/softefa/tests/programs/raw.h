/* A queue pair's send queue, and a completion queue, written and read as a program without libefa does. */
#pragma once
#include "common.h"

struct ring {
	volatile uint8_t *buffer;
	unsigned entry_size, entries, next;
	volatile uint32_t *doorbell;
};

/* The next completion, waited for for ten seconds. */
static inline const uint8_t *next_entry(struct ring *cq)
{
	volatile uint8_t *entry = cq->buffer + (size_t)(cq->next % cq->entries) * cq->entry_size;
	unsigned phase = !(cq->next / cq->entries & 1);
	time_t end = time(NULL) + 10;
	while ((entry[3] & 1) != phase)
		TRUE(time(NULL) < end);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	cq->next++;
	return (const uint8_t *)entry;
}

#ifdef NEWEST
static inline struct ring send_ring(struct ibv_qp *qp)
{
	struct efadv_wq_attr sq = { 0 }, rq = { 0 };
	EQ(efadv_query_qp_wqs(qp, &sq, &rq, sizeof(sq)), 0);
	return (struct ring){ sq.buffer, sq.entry_size, sq.num_entries, 0, sq.doorbell };
}

static inline struct ring cq_ring(struct ibv_cq *cq)
{
	struct efadv_cq_attr attr = { 0 };
	EQ(efadv_query_cq(cq, &attr, sizeof(attr)), 0);
	return (struct ring){ attr.buffer, attr.entry_size, attr.num_entries, 0, attr.doorbell };
}

/* An entry whose phase is put right, and the doorbell. */
static inline void write_entry(struct ring *sq, const void *entry, size_t bytes)
{
	uint8_t whole[128] = { 0 };
	memcpy(whole, entry, bytes);
	whole[3] ^= sq->next / sq->entries & 1;
	volatile uint64_t *place = (volatile uint64_t *)(sq->buffer + (size_t)(sq->next % sq->entries) * sq->entry_size);
	for (unsigned i = 0; i < sq->entry_size / 8; i++)
		memcpy((void *)&place[i], whole + 8 * i, 8);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	*sq->doorbell = ++sq->next & 0xffff;
}
#endif
