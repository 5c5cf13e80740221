#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine.h"
#include "_cgo_export.h"
#include "fork.h"

/* Go's exports have no const, which the table's types have. */
#define AS(member, function) .member = (__typeof__(((struct engine *)0)->member))(function)

static const struct engine table = {
	.version = ENGINE_VERSION,
	.size = sizeof(struct engine),
	AS(open, engineOpen),
	AS(close, engineClose),
	AS(query_device, engineQueryDevice),
	AS(query_port, engineQueryPort),
	AS(query_gids, engineQueryGIDs),
	AS(node_guid, engineNodeGUID),
	AS(clock, engineClock),
	AS(alloc_pd, engineAllocPD),
	AS(dealloc_pd, engineDeallocPD),
	AS(reg_mr, engineRegMR),
	AS(rereg_mr, engineReregMR),
	AS(dereg_mr, engineDeregMR),
	AS(alloc_mw, engineAllocMW),
	AS(dealloc_mw, engineDeallocMW),
	AS(create_cq, engineCreateCQ),
	AS(resize_cq, engineResizeCQ),
	AS(destroy_cq, engineDestroyCQ),
	AS(req_notify_cq, engineReqNotifyCQ),
	AS(poll_cq, enginePollCQ),
	AS(create_srq, engineCreateSRQ),
	AS(modify_srq, engineModifySRQ),
	AS(query_srq, engineQuerySRQ),
	AS(destroy_srq, engineDestroySRQ),
	AS(post_srq_recv, enginePostSRQRecv),
	AS(create_ah, engineCreateAH),
	AS(destroy_ah, engineDestroyAH),
	AS(create_qp, engineCreateQP),
	AS(modify_qp, engineModifyQP),
	AS(query_qp, engineQueryQP),
	AS(destroy_qp, engineDestroyQP),
	AS(post_send, enginePostSend),
	AS(post_recv, enginePostRecv),
	AS(use_queues, engineUseQueues),
	AS(ring, engineRing),
	AS(attach_mcast, engineAttachMcast),
	AS(detach_mcast, engineDetachMcast),
	AS(open_channel, engineOpenChannel),
	AS(close_channel, engineCloseChannel),
	AS(command, engineCommand),
	AS(serve, engineServe),
	AS(hold_events, engineHoldEvents),
	AS(name_cq, engineNameCQ),
	AS(send_event, engineSendEvent),
	AS(drop_events, engineDropEvents),
};

static pid_t owner; /* the process whose engine this is; set by one thread at a time, as the library calls */

/* At the end of the process. A child that was forked has this handler, too, and no engine. Signals wait but those that
 * Go needs or a fault raises, as in every call of the engine: handlers may have no stack of their own.
 */
static void ended(void)
{
	static const int open[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGURG };
	sigset_t blocked, before;

	if (getpid() != owner)
		return;
	sigfillset(&blocked);
	for (size_t i = 0; i < sizeof(open) / sizeof(*open); i++)
		sigdelset(&blocked, open[i]);
	pthread_sigmask(SIG_BLOCK, &blocked, &before);
	engineEnded();
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static int at_end(void)
{
	int status = owner ? 0 : atexit(ended);

	owner = getpid();
	return status ? ENOMEM : 0;
}

const struct engine *ndklab_engine(uint32_t version, char *message, uint64_t size)
{
	int status = close_in_children();

	if (!status)
		status = at_end();
	if (!status)
		status = engineStart(version, message, size);
	else
		snprintf(message, size, "%s", strerror(status));
	if (!status)
		return &table;
	errno = status;
	return NULL;
}
