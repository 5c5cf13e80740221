/* What posting refuses, where the engine is in a process of its own: what that finds wrong with a work request it can
 * only tell by a completion. So the errors that posting has are found here. Those of binding a window depend on too
 * much of the engine's, which is asked then (posts.c).
 */
#include <stdlib.h>
#include "remote_lib.h"

/* Address handles by the engine's handle, of which programs have a copy in their structures. */
#define LISTS 256

struct address {
	uint32_t handle;
	uint64_t pd;
	struct address *next;
};

static pthread_mutex_t noting = PTHREAD_MUTEX_INITIALIZER;
static struct address *addresses[LISTS]; /* guarded by noting */

void check_forked(void)
{
	noting = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

/* Where an address handle is, or the end of its list. The lock is held. */
static struct address **find_address(uint32_t handle)
{
	struct address **at = &addresses[handle % LISTS];

	while (*at && (*at)->handle != handle)
		at = &(*at)->next;
	return at;
}

int note_address(uint32_t handle, uint64_t pd)
{
	struct address *address = malloc(sizeof(*address)), **at;

	if (!address)
		return ENOMEM;
	*address = (struct address){ .handle = handle, .pd = pd };
	pthread_mutex_lock(&noting);
	at = find_address(handle);
	address->next = *at;
	*at = address;
	pthread_mutex_unlock(&noting);
	return 0;
}

void forget_address(uint32_t handle)
{
	struct address **at, *address;

	pthread_mutex_lock(&noting);
	at = find_address(handle);
	address = *at;
	if (address)
		*at = address->next;
	pthread_mutex_unlock(&noting);
	free(address);
}

static bool is_address(uint32_t handle, uint64_t pd)
{
	struct address *address;
	bool found;

	pthread_mutex_lock(&noting);
	address = *find_address(handle);
	found = address && address->pd == pd;
	pthread_mutex_unlock(&noting);
	return found;
}

/* The operations of each type of QP, as bits by their numbers. */
#define OPERATION(name) (1u << IBV_WR_##name)
#define SENDS (OPERATION(SEND) | OPERATION(SEND_WITH_IMM))
#define WRITES (OPERATION(RDMA_WRITE) | OPERATION(RDMA_WRITE_WITH_IMM))
#define LOCALS (OPERATION(LOCAL_INV) | OPERATION(BIND_MW))
#define ATOMICS (OPERATION(ATOMIC_CMP_AND_SWP) | OPERATION(ATOMIC_FETCH_AND_ADD))
#define ANSWERED (OPERATION(RDMA_READ) | ATOMICS | OPERATION(ATOMIC_WRITE))

static uint32_t operations_of(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_RC:
		return SENDS | WRITES | LOCALS | ANSWERED | OPERATION(SEND_WITH_INV);
	case IBV_QPT_UC:
		return SENDS | WRITES | LOCALS;
	default:
		return SENDS;
	}
}

/* The size of what atomics are about, and of the longest message, bytes. */
#define WORD 8
#define LONGEST (1ull << 31)

uint64_t data_length(const struct ibv_send_wr *wr)
{
	uint64_t length = 0;

	for (int i = 0; i < wr->num_sge; i++)
		length += wr->sg_list[i].length;
	return length;
}

/* Of a request that has data, whose operation is known. */
static int check_data(const struct remote_qp *qp, const struct ibv_send_wr *wr, uint32_t operation)
{
	bool inlined = wr->send_flags & IBV_SEND_INLINE;
	uint64_t length;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->cap.max_send_sge)
		return EINVAL;
	length = data_length(wr);
	if (length > (inlined ? qp->cap.max_inline_data : LONGEST))
		return EINVAL;
	if ((operation & ANSWERED) && !__atomic_load_n(&qp->reads, __ATOMIC_RELAXED))
		return EINVAL;
	if (inlined && (operation & (ATOMICS | OPERATION(RDMA_READ))))
		return EINVAL;
	if ((operation & ATOMICS) && (wr->wr.atomic.remote_addr % WORD || length < WORD))
		return EINVAL;
	if ((operation & OPERATION(ATOMIC_WRITE)) && (wr->wr.rdma.remote_addr % WORD || length != WORD))
		return EINVAL;
	return 0;
}

int check_send(const struct remote_qp *qp, const struct ibv_send_wr *wr)
{
	enum ibv_qp_state state = __atomic_load_n(&qp->state, __ATOMIC_ACQUIRE);
	uint32_t operation = (unsigned int)wr->opcode < 32 ? 1u << wr->opcode : 0;

	if (state == IBV_QPS_RESET || state == IBV_QPS_INIT || state == IBV_QPS_RTR)
		return EINVAL;
	if (!(operation & operations_of(qp->type)))
		return EINVAL;
	if (operation & LOCALS)
		return 0;
	if (qp->type == IBV_QPT_UD && (!wr->wr.ud.ah || !is_address(wr->wr.ud.ah->handle, qp->pd)))
		return EINVAL;
	return check_data(qp, wr, operation);
}
