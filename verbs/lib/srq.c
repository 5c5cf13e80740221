/* Shared receive queues. */
#include <errno.h>
#include <stdlib.h>
#include "lib.h"
#include "public.h"

static void free_srq(struct srq *srq)
{
	pthread_mutex_destroy(&srq->srq.mutex);
	pthread_cond_destroy(&srq->srq.cond);
	free(srq);
}

static struct srq *new_srq(struct ibv_pd *pd, void *srq_context)
{
	struct srq *srq = calloc(1, sizeof(*srq));

	if (!srq)
		return NULL;
	srq->srq.context = pd->context;
	srq->srq.srq_context = srq_context;
	srq->srq.pd = pd;
	pthread_mutex_init(&srq->srq.mutex, NULL);
	pthread_cond_init(&srq->srq.cond, NULL);
	return srq;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	int status = check_context(pd->context);
	struct srq *srq = status ? NULL : new_srq(pd, attr->srq_context);

	if (!srq) {
		errno = status ? status : ENOMEM;
		return NULL;
	}
	status = CALL(pd->context, create_srq, to_pd(pd)->handle, (uintptr_t)srq, &attr->attr, &srq->handle);
	if (status) {
		free_srq(srq);
		errno = status;
		return NULL;
	}
	srq->srq.handle = srq->handle;
	hold_pd(pd);
	return &srq->srq;
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	int status = check_context(srq->context);

	return status ? status : CALL(srq->context, modify_srq, to_srq(srq)->handle, attr, mask);
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	int status = check_context(srq->context);

	return status ? status : CALL(srq->context, query_srq, to_srq(srq)->handle, attr);
}

int ibv_destroy_srq(struct ibv_srq *public)
{
	struct srq *srq = to_srq(public);
	int status = check_context(public->context);

	if (!status)
		status = CALL(public->context, destroy_srq, srq->handle);
	if (status)
		return status;
	remove_async_events(public->context, (uintptr_t)srq);
	wait_acknowledged(&public->mutex, &public->cond, &public->events_completed, &srq->async_events);
	if (to_context(public->context)->apart)
		queues_release_srq(srq->handle);
	release_pd(public->pd);
	free_srq(srq);
	return 0;
}
