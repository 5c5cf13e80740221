/* Memory regions and memory windows. */
#include <errno.h>
#include <stdlib.h>
#include "lib.h"
#include "public.h"

struct ibv_mr *register_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	int status = check_context(pd->context);
	struct mr *mr = status ? NULL : calloc(1, sizeof(*mr));
	uint32_t key;

	if (mr)
		status = CALL(pd->context, reg_mr, to_pd(pd)->handle, addr, length, iova,
			      access & ~IBV_ACCESS_OPTIONAL_RANGE, &mr->handle, &key);
	else if (!status)
		status = ENOMEM;
	if (status) {
		free(mr);
		errno = status;
		return NULL;
	}
	hold_pd(pd);
	mr->mr = (struct ibv_mr){
		.context = pd->context,
		.pd = pd,
		.addr = addr,
		.length = length,
		.handle = mr->handle,
		.lkey = key,
		.rkey = key,
	};
	return &mr->mr;
}

/* With IBV_ACCESS_ZERO_BASED addresses count from the beginning. */
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return register_mr(pd, addr, length, access & IBV_ACCESS_ZERO_BASED ? 0 : (uintptr_t)addr, access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return register_mr(pd, addr, length, iova, access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	return register_mr(pd, addr, length, iova, access);
}

/* A region that reads as zeros and forgets what is written. */
struct ibv_mr *alloc_null_mr(struct ibv_pd *pd)
{
	return register_mr(pd, NULL, SIZE_MAX, 0, IBV_ACCESS_LOCAL_WRITE);
}

static int fail_reregistration(int status, enum ibv_rereg_mr_err_code code)
{
	errno = status;
	return code;
}

int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	bool move = flags & IBV_REREG_MR_CHANGE_PD, translate = flags & IBV_REREG_MR_CHANGE_TRANSLATION;
	int status = check_context(mr->context);
	uint32_t key = mr->lkey;

	if (status)
		return fail_reregistration(status, IBV_REREG_MR_ERR_CMD);
	if (!flags || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) || (translate && (!addr || !length || to_mr(mr)->dm)) ||
	    (move && !pd))
		return fail_reregistration(EINVAL, IBV_REREG_MR_ERR_INPUT);
	status = CALL(mr->context, rereg_mr, to_mr(mr)->handle, flags, move ? to_pd(pd)->handle : 0, addr, length,
		      access & ~IBV_ACCESS_OPTIONAL_RANGE, &key);
	if (status)
		return fail_reregistration(status, IBV_REREG_MR_ERR_CMD);
	mr->lkey = mr->rkey = key;
	if (translate) {
		mr->addr = addr;
		mr->length = length;
	}
	if (move) {
		hold_pd(pd);
		release_pd(mr->pd);
		mr->pd = pd;
	}
	return 0;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	int status = check_context(mr->context);

	if (!status)
		status = CALL_WAITING(mr->context, dereg_mr, to_mr(mr)->handle);
	if (status)
		return status;
	release_pd(mr->pd);
	if (to_mr(mr)->dm)
		drop_user(&to_mr(mr)->dm->users);
	free(to_mr(mr));
	return 0;
}

/* All memory is read where it lies and faults in by itself: advice has nothing to do. */
int advise_mr(struct ibv_pd *pd, enum ib_uverbs_advise_mr_advice advice, uint32_t flags, struct ibv_sge *list,
	      uint32_t count)
{
	(void)pd;
	(void)flags;
	if (advice > IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
		return EOPNOTSUPP;
	return list && count ? 0 : EINVAL;
}

struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	int status = check_context(pd->context);
	struct mw *mw = status ? NULL : calloc(1, sizeof(*mw));

	if (mw)
		status = CALL(pd->context, alloc_mw, to_pd(pd)->handle, type, &mw->handle, &mw->mw.rkey);
	else if (!status)
		status = ENOMEM;
	if (status) {
		free(mw);
		errno = status;
		return NULL;
	}
	hold_pd(pd);
	mw->mw.context = pd->context;
	mw->mw.pd = pd;
	mw->mw.handle = mw->handle;
	mw->mw.type = type;
	return &mw->mw;
}

int dealloc_mw(struct ibv_mw *mw)
{
	int status = check_context(mw->context);

	if (!status)
		status = CALL(mw->context, dealloc_mw, to_mw(mw)->handle);
	if (status)
		return status;
	release_pd(mw->pd);
	free(to_mw(mw));
	return 0;
}

/* The next key of a window of type 1: another value of the low byte (IBTA Vol. 1, 10.6.7.2.1). */
static uint32_t next_key(uint32_t key)
{
	return (key & ~0xffu) | ((key + 1) & 0xff);
}

int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct ibv_send_wr wr = {
		.wr_id = bind->wr_id,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = bind->send_flags,
		.bind_mw = { .mw = mw, .rkey = next_key(mw->rkey), .bind_info = bind->bind_info },
	};
	struct ibv_send_wr *bad;
	int status = post_send(qp, &wr, &bad);

	if (!status)
		mw->rkey = wr.bind_mw.rkey;
	return status;
}
