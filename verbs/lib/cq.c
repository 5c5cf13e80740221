/* Completion queues: making, resizing and destroying them. */
#include <errno.h>
#include <stdlib.h>
#include "lib.h"
#include "public.h"

static void hold_channel(struct ibv_comp_channel *channel, int more)
{
	if (!channel)
		return;
	pthread_mutex_lock(&to_channel(channel)->taking);
	channel->refcnt += more;
	pthread_mutex_unlock(&to_channel(channel)->taking);
}

static void free_cq(struct cq *cq)
{
	pthread_mutex_destroy(&cq->cq.mutex);
	pthread_cond_destroy(&cq->cq.cond);
	pthread_mutex_destroy(&cq->polling);
	free(cq);
}

static struct cq *new_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel)
{
	struct cq *cq = calloc(1, sizeof(*cq));

	if (!cq)
		return NULL;
	cq->cq.context = context;
	cq->cq.channel = channel;
	cq->cq.cq_context = cq_context;
	cq->cq.cqe = cqe;
	pthread_mutex_init(&cq->cq.mutex, NULL);
	pthread_cond_init(&cq->cq.cond, NULL);
	pthread_mutex_init(&cq->polling, NULL);
	return cq;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel,
			     int vector)
{
	int status = check_context(context);
	struct cq *cq;

	if (!status && (cqe < 1 || vector < 0 || vector >= context->num_comp_vectors))
		status = EINVAL;
	cq = status ? NULL : new_cq(context, cqe, cq_context, channel);
	if (!cq) {
		errno = status ? status : ENOMEM;
		return NULL;
	}
	status = CALL(context, create_cq, to_context(context)->handle, cqe, channel ? to_channel(channel)->fd : -1,
		      (uintptr_t)cq, &cq->handle);
	if (status) {
		free_cq(cq);
		errno = status;
		return NULL;
	}
	cq->cq.handle = cq->handle;
	hold_channel(channel, 1);
	return &cq->cq;
}

/* VLANs and tags of flows are refused, and CQs that overrun silently. */
struct ibv_cq_ex *create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	const uint64_t times = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
	const uint32_t known = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
	struct ibv_pd *parent = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD ? attr->parent_domain : NULL;
	uint32_t flags = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0;
	struct ibv_cq *cq;

	if ((attr->comp_mask & ~known) || (attr->wc_flags & ~(IBV_WC_STANDARD_FLAGS | times)) ||
	    (flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (attr->cqe > INT32_MAX || (parent && !to_pd(parent)->parent)) {
		errno = EINVAL;
		return NULL;
	}
	cq = ibv_create_cq(context, attr->cqe, attr->cq_context, attr->channel, attr->comp_vector);
	if (!cq)
		return NULL;
	if (parent) {
		to_cq(cq)->parent = to_pd(parent);
		hold_pd(parent);
	}
	set_poll_functions(&to_cq(cq)->ex);
	return &to_cq(cq)->ex;
}

int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	int status = check_context(cq->context);

	if (!status && cqe < 1)
		status = EINVAL;
	if (!status)
		status = CALL(cq->context, resize_cq, to_cq(cq)->handle, cqe);
	if (!status)
		cq->cqe = cqe;
	return status;
}

static bool is_cookie(const void *event, uint64_t cookie)
{
	return *(const uint64_t *)event == cookie;
}

/* Waits for acknowledgements as the manual page says: who has an event may still use the CQ. */
int ibv_destroy_cq(struct ibv_cq *public)
{
	struct ibv_comp_channel *channel = public->channel;
	struct cq *cq = to_cq(public);
	int status = check_context(public->context);

	if (!status)
		status = CALL(public->context, destroy_cq, cq->handle);
	if (status)
		return status;
	if (channel)
		remove_events(public->context, channel->fd, to_channel(channel)->fd, &to_channel(channel)->taking,
			      sizeof(uint64_t), is_cookie, (uintptr_t)cq);
	remove_async_events(public->context, (uintptr_t)cq);
	wait_acknowledged(&public->mutex, &public->cond, &public->comp_events_completed, &cq->comp_events);
	wait_acknowledged(&public->mutex, &public->cond, &public->async_events_completed, &cq->async_events);
	if (to_context(public->context)->apart)
		queues_release_cq(cq->handle);
	hold_channel(channel, -1);
	if (cq->parent)
		release_pd(&cq->parent->pd);
	free_cq(cq);
	return 0;
}
