/* Queue pairs: making, modifying, querying and destroying them, and their multicast groups. */
#include <errno.h>
#include <stdlib.h>
#include "lib.h"
#include "public.h"

static void free_qp(struct qp *qp)
{
	pthread_mutex_destroy(&qp->qp.mutex);
	pthread_cond_destroy(&qp->qp.cond);
	pthread_mutex_destroy(&qp->sending);
	pthread_mutex_destroy(&qp->receiving);
	free_batch(qp->batch);
	free(qp->queues);
	free(qp);
}

static struct qp *new_qp(struct ibv_context *context, const struct ibv_qp_init_attr_ex *attr)
{
	struct qp *qp = calloc(1, sizeof(*qp));

	if (!qp)
		return NULL;
	qp->qp.context = context;
	qp->qp.qp_context = attr->qp_context;
	qp->qp.pd = attr->pd;
	qp->qp.send_cq = attr->send_cq;
	qp->qp.recv_cq = attr->recv_cq;
	qp->qp.srq = attr->srq;
	qp->qp.state = IBV_QPS_RESET;
	qp->qp.qp_type = attr->qp_type;
	qp->sq_sig_all = attr->sq_sig_all;
	pthread_mutex_init(&qp->qp.mutex, NULL);
	pthread_cond_init(&qp->qp.cond, NULL);
	pthread_mutex_init(&qp->sending, NULL);
	pthread_mutex_init(&qp->receiving, NULL);
	return qp;
}

/* Has the engine make the queue pair. */
static int start_qp(struct qp *qp, struct ibv_qp_init_attr_ex *attr)
{
	struct engine_qp_init init = {
		.pd = to_pd(attr->pd)->handle,
		.send_cq = to_cq(attr->send_cq)->handle,
		.recv_cq = to_cq(attr->recv_cq)->handle,
		.srq = attr->srq ? to_srq(attr->srq)->handle : 0,
		.cookie = (uintptr_t)qp,
		.type = attr->qp_type,
		.create_flags = attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS ? attr->create_flags : 0,
		.cap = attr->cap,
		.sq_sig_all = attr->sq_sig_all,
	};
	int status = CALL(qp->qp.context, create_qp, &init, &qp->handle);

	if (status)
		return status;
	qp->cap = attr->cap = init.cap;
	qp->qp.qp_num = init.qp_num;
	qp->qp.handle = qp->handle;
	return 0;
}

/* What send_ops_flags may ask of a type of QP. */
static uint64_t send_operations(enum ibv_qp_type type)
{
	const uint64_t ud = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
	const uint64_t uc = ud | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
			    IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV;
	const uint64_t rc = uc | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
			    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_ATOMIC_WRITE;

	return type == IBV_QPT_RC ? rc : type == IBV_QPT_UC ? uc : type == IBV_QPT_UD ? ud : 0;
}

/* Raw packets, XRC, segmentation and receive hashing are refused. */
static int check_qp(struct ibv_context *context, const struct ibv_qp_init_attr_ex *attr)
{
	const uint32_t known =
		IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	int status = check_context(context);

	if (status)
		return status;
	if (attr->comp_mask & ~known)
		return EOPNOTSUPP;
	if (attr->qp_type != IBV_QPT_RC && attr->qp_type != IBV_QPT_UC && attr->qp_type != IBV_QPT_UD)
		return EOPNOTSUPP;
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd || !attr->send_cq || !attr->recv_cq)
		return EINVAL;
	if ((attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) &&
	    (attr->send_ops_flags & ~send_operations(attr->qp_type)))
		return EOPNOTSUPP;
	return 0;
}

struct ibv_qp *create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	int status = check_qp(context, attr);
	struct qp *qp = status ? NULL : new_qp(context, attr);

	if (!qp) {
		errno = status ? status : ENOMEM;
		return NULL;
	}
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
		qp->batch = new_batch(&qp->ex);
		status = qp->batch ? 0 : ENOMEM;
	}
	if (!status)
		status = start_qp(qp, attr);
	if (status) {
		free_qp(qp);
		errno = status;
		return NULL;
	}
	hold_pd(attr->pd);
	return &qp->qp;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex extended = {
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct ibv_qp *qp = create_qp_ex(pd->context, &extended);

	if (qp)
		attr->cap = extended.cap;
	return qp;
}

/* NULL where the QP was made without send_ops_flags. */
struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return to_qp(qp)->batch ? &to_qp(qp)->ex : NULL;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	int status = check_context(qp->context);

	if (!status)
		status = CALL_WAITING(qp->context, modify_qp, to_qp(qp)->handle, attr, mask);
	if (!status && (mask & IBV_QP_STATE))
		qp->state = attr->qp_state;
	return status;
}

int ibv_query_qp(struct ibv_qp *public, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	struct qp *qp = to_qp(public);
	int status = check_context(public->context);

	(void)mask; /* all is told, which the manual page allows */
	if (status)
		return status;
	*attr = (struct ibv_qp_attr){ 0 };
	*init = (struct ibv_qp_init_attr){ .cap = qp->cap };
	status = CALL(public->context, query_qp, qp->handle, attr, init);
	if (status)
		return status;
	init->qp_context = public->qp_context;
	init->send_cq = public->send_cq;
	init->recv_cq = public->recv_cq;
	init->srq = public->srq;
	init->qp_type = public->qp_type;
	init->sq_sig_all = qp->sq_sig_all;
	public->state = attr->qp_state;
	return 0;
}

/* Data may be written in any order: a receiver looks at completions. */
int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint32_t flags)
{
	(void)qp;
	(void)opcode;
	(void)flags;
	return 0;
}

int ibv_destroy_qp(struct ibv_qp *public)
{
	struct qp *qp = to_qp(public);
	int status = check_context(public->context);

	if (!status)
		status = CALL_WAITING(public->context, destroy_qp, qp->handle);
	if (status)
		return status;
	remove_async_events(public->context, (uintptr_t)qp);
	wait_acknowledged(&public->mutex, &public->cond, &public->events_completed, &qp->async_events);
	if (to_context(public->context)->apart)
		queues_release_qp(qp->handle);
	release_pd(public->pd);
	free_qp(qp);
	return 0;
}

int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	int status = check_context(qp->context);

	(void)lid;
	return status ? status : CALL(qp->context, attach_mcast, to_qp(qp)->handle, gid->raw);
}

int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	int status = check_context(qp->context);

	(void)lid;
	return status ? status : CALL(qp->context, detach_mcast, to_qp(qp)->handle, gid->raw);
}
