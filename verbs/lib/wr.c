/* The extended way to post, ibv_wr_post(3): work requests are built between wr_start and wr_complete, which
 * posts them as one list. All of wr_* are set, since the inline code of verbs.h calls them unchecked: what a QP
 * cannot do is an error that wr_complete returns.
 *
 * Inline data is copied when it is set. Work requests, their SGEs and their inline data lie in three arrays that
 * grow, and refer to each other by index until they are posted.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "lib.h"

/* What of the arrays is a work request's. */
struct parts {
	size_t first_sge, first_byte;
	bool inlined;
};

struct batch {
	pthread_mutex_t lock; /* held from wr_start to wr_complete or wr_abort, guards all below */
	int error;	      /* the first one */
	size_t count, sges, bytes;
	size_t count_room, sge_room, byte_room;
	struct ibv_send_wr *wr;
	struct parts *parts;
	struct ibv_sge *sge;
	char *data;
};

static struct qp *of(struct ibv_qp_ex *qp)
{
	return container_of(qp, struct qp, ex);
}

static void fail(struct batch *batch, int status)
{
	if (!batch->error)
		batch->error = status;
}

/* The array, moved where it had to grow to hold as many elements as are needed; or NULL, where there is no memory
 * and which is then the error, and the array stays. */
static void *grow(struct batch *batch, void *array, size_t *room, size_t needed, size_t size)
{
	size_t more = *room ? *room : 16;
	void *grown;

	if (array && needed <= *room)
		return array;
	while (more < needed)
		more *= 2;
	grown = realloc(array, more * size);
	if (grown)
		*room = more;
	else
		fail(batch, ENOMEM);
	return grown;
}

static bool grow_requests(struct batch *batch)
{
	size_t room = batch->count_room; /* of both arrays */
	void *wr = grow(batch, batch->wr, &room, batch->count + 1, sizeof(*batch->wr)), *parts;

	if (!wr)
		return false;
	batch->wr = wr;
	parts = grow(batch, batch->parts, &batch->count_room, batch->count + 1, sizeof(*batch->parts));
	if (!parts)
		return false;
	batch->parts = parts;
	return true;
}

static bool grow_sges(struct batch *batch, size_t more)
{
	void *sge = grow(batch, batch->sge, &batch->sge_room, batch->sges + more, sizeof(*batch->sge));

	if (sge)
		batch->sge = sge;
	return sge;
}

static bool grow_data(struct batch *batch, size_t more)
{
	void *data = grow(batch, batch->data, &batch->byte_room, batch->bytes + more, 1);

	if (data)
		batch->data = data;
	return data;
}

static void wr_start(struct ibv_qp_ex *qp)
{
	struct batch *batch = of(qp)->batch;

	pthread_mutex_lock(&batch->lock);
	batch->error = 0;
	batch->count = batch->sges = batch->bytes = 0;
}

static void wr_abort(struct ibv_qp_ex *qp)
{
	pthread_mutex_unlock(&of(qp)->batch->lock);
}

/* A new work request without data, or NULL after an error. */
static struct ibv_send_wr *add(struct ibv_qp_ex *qp, enum ibv_wr_opcode opcode)
{
	struct batch *batch = of(qp)->batch;

	if (batch->error)
		return NULL;
	if (batch->count >= of(qp)->cap.max_send_wr) {
		fail(batch, ENOMEM);
		return NULL;
	}
	if (!grow_requests(batch))
		return NULL;
	batch->parts[batch->count] = (struct parts){ .first_sge = batch->sges };
	batch->wr[batch->count] = (struct ibv_send_wr){
		.wr_id = qp->wr_id,
		.opcode = opcode,
		.send_flags = qp->wr_flags,
	};
	return &batch->wr[batch->count++];
}

/* The last work request, or NULL after an error. */
static struct ibv_send_wr *last(struct batch *batch)
{
	if (!batch->error && !batch->count)
		fail(batch, EINVAL);
	return batch->error ? NULL : &batch->wr[batch->count - 1];
}

static void wr_send(struct ibv_qp_ex *qp)
{
	add(qp, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *qp, __be32 imm)
{
	struct ibv_send_wr *wr = add(qp, IBV_WR_SEND_WITH_IMM);

	if (wr)
		wr->imm_data = imm;
}

static void add_with_key(struct ibv_qp_ex *qp, enum ibv_wr_opcode opcode, uint32_t rkey)
{
	struct ibv_send_wr *wr = add(qp, opcode);

	if (wr)
		wr->invalidate_rkey = rkey;
}

static void wr_send_inv(struct ibv_qp_ex *qp, uint32_t rkey)
{
	add_with_key(qp, IBV_WR_SEND_WITH_INV, rkey);
}

static void wr_local_inv(struct ibv_qp_ex *qp, uint32_t rkey)
{
	add_with_key(qp, IBV_WR_LOCAL_INV, rkey);
}

static struct ibv_send_wr *add_remote(struct ibv_qp_ex *qp, enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t addr)
{
	struct ibv_send_wr *wr = add(qp, opcode);

	if (wr) {
		wr->wr.rdma.rkey = rkey;
		wr->wr.rdma.remote_addr = addr;
	}
	return wr;
}

static void wr_rdma_read(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr)
{
	add_remote(qp, IBV_WR_RDMA_READ, rkey, addr);
}

static void wr_rdma_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr)
{
	add_remote(qp, IBV_WR_RDMA_WRITE, rkey, addr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, __be32 imm)
{
	struct ibv_send_wr *wr = add_remote(qp, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr);

	if (wr)
		wr->imm_data = imm;
}

static void add_atomic(struct ibv_qp_ex *qp, enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t addr,
		       uint64_t compare_add, uint64_t swap)
{
	struct ibv_send_wr *wr = add(qp, opcode);

	if (!wr)
		return;
	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.remote_addr = addr;
	wr->wr.atomic.compare_add = compare_add;
	wr->wr.atomic.swap = swap;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, uint64_t compare, uint64_t swap)
{
	add_atomic(qp, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr, compare, swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, uint64_t more)
{
	add_atomic(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr, more, 0);
}

static void wr_bind_mw(struct ibv_qp_ex *qp, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	struct ibv_send_wr *wr = add(qp, IBV_WR_BIND_MW);

	if (!wr)
		return;
	wr->bind_mw.mw = mw;
	wr->bind_mw.rkey = rkey;
	wr->bind_mw.bind_info = *info;
}

static void wr_send_tso(struct ibv_qp_ex *qp, void *header, uint16_t size, uint16_t mss)
{
	(void)header;
	(void)size;
	(void)mss;
	fail(of(qp)->batch, EOPNOTSUPP);
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *qp, uint32_t number)
{
	(void)number;
	fail(of(qp)->batch, EOPNOTSUPP);
}

static void wr_set_ud_addr(struct ibv_qp_ex *qp, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct ibv_send_wr *wr = last(of(qp)->batch);

	if (!wr)
		return;
	wr->wr.ud.ah = ah;
	wr->wr.ud.remote_qpn = qpn;
	wr->wr.ud.remote_qkey = qkey;
}

static void wr_set_sge_list(struct ibv_qp_ex *qp, size_t count, const struct ibv_sge *list)
{
	struct batch *batch = of(qp)->batch;
	struct ibv_send_wr *wr = last(batch);

	if (!wr)
		return;
	if (count > of(qp)->cap.max_send_sge) {
		fail(batch, EINVAL);
		return;
	}
	if (!grow_sges(batch, count))
		return;
	if (count)
		memcpy(batch->sge + batch->sges, list, count * sizeof(*list));
	batch->parts[batch->count - 1] = (struct parts){ .first_sge = batch->sges };
	batch->sges += count;
	wr->num_sge = count;
}

static void wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = { .addr = addr, .length = length, .lkey = lkey };

	wr_set_sge_list(qp, 1, &sge);
}

/* Copies data for the last work request, and gives it one SGE for all of it. */
static void set_inline(struct batch *batch, size_t count, const struct ibv_data_buf *list, size_t max)
{
	struct ibv_send_wr *wr = last(batch);
	size_t length = 0, first = batch->bytes;

	if (!wr)
		return;
	for (size_t i = 0; i < count; i++) {
		if (list[i].length > max - length) {
			fail(batch, EINVAL);
			return;
		}
		length += list[i].length;
	}
	if (!grow_sges(batch, 1) || !grow_data(batch, length))
		return;
	for (size_t i = 0; i < count; i++) {
		if (list[i].length)
			memcpy(batch->data + batch->bytes, list[i].addr, list[i].length);
		batch->bytes += list[i].length;
	}
	batch->parts[batch->count - 1] =
		(struct parts){ .first_sge = batch->sges, .first_byte = first, .inlined = true };
	batch->sge[batch->sges++] = (struct ibv_sge){ .length = length };
	wr->num_sge = 1;
	wr->send_flags |= IBV_SEND_INLINE;
}

static void wr_set_inline_data_list(struct ibv_qp_ex *qp, size_t count, const struct ibv_data_buf *list)
{
	set_inline(of(qp)->batch, count, list, of(qp)->cap.max_inline_data);
}

static void wr_set_inline_data(struct ibv_qp_ex *qp, void *addr, size_t length)
{
	struct ibv_data_buf data = { .addr = addr, .length = length };

	wr_set_inline_data_list(qp, 1, &data);
}

/* The 8 bytes are part of the request, and no setter of data follows. */
static void wr_atomic_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr, const void *value)
{
	struct ibv_data_buf data = { .addr = (void *)value, .length = sizeof(uint64_t) };

	if (add_remote(qp, IBV_WR_ATOMIC_WRITE, rkey, addr))
		set_inline(of(qp)->batch, 1, &data, sizeof(uint64_t));
}

/* Turns indices into pointers. */
static void link_requests(struct batch *batch)
{
	for (size_t i = 0; i < batch->count; i++) {
		struct ibv_send_wr *wr = &batch->wr[i];
		struct parts *parts = &batch->parts[i];

		wr->next = i + 1 < batch->count ? wr + 1 : NULL;
		wr->sg_list = wr->num_sge ? &batch->sge[parts->first_sge] : NULL;
		if (parts->inlined)
			wr->sg_list->addr = (uintptr_t)(batch->data + parts->first_byte);
	}
}

static int wr_complete(struct ibv_qp_ex *qp)
{
	struct batch *batch = of(qp)->batch;
	struct ibv_send_wr *bad;
	int status = batch->error;

	if (!status && batch->count) {
		link_requests(batch);
		status = post_send(&qp->qp_base, batch->wr, &bad);
	}
	pthread_mutex_unlock(&batch->lock);
	return status;
}

struct batch *new_batch(struct ibv_qp_ex *qp)
{
	struct batch *batch = calloc(1, sizeof(*batch));

	if (!batch)
		return NULL;
	pthread_mutex_init(&batch->lock, NULL);
	qp->wr_start = wr_start;
	qp->wr_complete = wr_complete;
	qp->wr_abort = wr_abort;
	qp->wr_send = wr_send;
	qp->wr_send_imm = wr_send_imm;
	qp->wr_send_inv = wr_send_inv;
	qp->wr_send_tso = wr_send_tso;
	qp->wr_local_inv = wr_local_inv;
	qp->wr_bind_mw = wr_bind_mw;
	qp->wr_rdma_read = wr_rdma_read;
	qp->wr_rdma_write = wr_rdma_write;
	qp->wr_rdma_write_imm = wr_rdma_write_imm;
	qp->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	qp->wr_atomic_fetch_add = wr_atomic_fetch_add;
	qp->wr_atomic_write = wr_atomic_write;
	qp->wr_set_ud_addr = wr_set_ud_addr;
	qp->wr_set_xrc_srqn = wr_set_xrc_srqn;
	qp->wr_set_inline_data = wr_set_inline_data;
	qp->wr_set_inline_data_list = wr_set_inline_data_list;
	qp->wr_set_sge = wr_set_sge;
	qp->wr_set_sge_list = wr_set_sge_list;
	return batch;
}

void free_batch(struct batch *batch)
{
	if (!batch)
		return;
	pthread_mutex_destroy(&batch->lock);
	free(batch->wr);
	free(batch->parts);
	free(batch->sge);
	free(batch->data);
	free(batch);
}
