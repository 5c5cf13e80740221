/* Asynchronous events: ibv_get_async_event and ibv_ack_async_event. */
#include <errno.h>
#include <string.h>
#include "lib.h"
#include "public.h"

/* What acknowledging an event takes. */
struct tally {
	pthread_mutex_t *mutex; /* NULL for events of the device and its port, which nobody waits for */
	pthread_cond_t *cond;
	uint32_t *acknowledged;
	uint32_t *taken;
};

static struct tally tally_of_cq(struct cq *cq)
{
	return (struct tally){ &cq->cq.mutex, &cq->cq.cond, &cq->cq.async_events_completed, &cq->async_events };
}

static struct tally tally_of_qp(struct qp *qp)
{
	return (struct tally){ &qp->qp.mutex, &qp->qp.cond, &qp->qp.events_completed, &qp->async_events };
}

static struct tally tally_of_srq(struct srq *srq)
{
	return (struct tally){ &srq->srq.mutex, &srq->srq.cond, &srq->srq.events_completed, &srq->async_events };
}

static struct tally find_tally(enum ibv_event_type type, void *object)
{
	switch (type) {
	case IBV_EVENT_CQ_ERR:
		return tally_of_cq(object);
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return tally_of_qp(object);
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return tally_of_srq(object);
	default:
		return (struct tally){ 0 };
	}
}

static void *object_of(const struct engine_async_event *event)
{
	return (void *)(uintptr_t)event->cookie;
}

static void count_event(void *event)
{
	struct engine_async_event *taken = event;
	struct tally tally = find_tally(taken->type, object_of(taken));

	if (!tally.mutex)
		return;
	pthread_mutex_lock(tally.mutex);
	++*tally.taken;
	pthread_mutex_unlock(tally.mutex);
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	struct engine_async_event taken;
	int status = check_context(context);

	if (status) {
		errno = status;
		return -1;
	}
	if (take_event(context->async_fd, &to_context(context)->taking, &taken, sizeof(taken), count_event))
		return -1;
	memset(event, 0, sizeof(*event));
	event->event_type = taken.type;
	if (find_tally(taken.type, object_of(&taken)).mutex)
		event->element.cq = object_of(&taken); /* all objects of the union are pointers */
	else
		event->element.port_num = taken.port;
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct tally tally = find_tally(event->event_type, event->element.cq);

	if (!tally.mutex)
		return;
	pthread_mutex_lock(tally.mutex);
	++*tally.acknowledged;
	pthread_cond_signal(tally.cond);
	pthread_mutex_unlock(tally.mutex);
}

static bool is_about(const void *event, uint64_t cookie)
{
	const struct engine_async_event *taken = event;

	return taken->cookie == cookie;
}

void remove_async_events(struct ibv_context *public, uint64_t cookie)
{
	struct context *context = to_context(public);

	remove_events(public, public->async_fd, context->async_fd, &context->taking, sizeof(struct engine_async_event),
		      is_about, cookie);
}
