/* The extended way to poll, ibv_create_cq_ex(3): start_poll and next_poll take one completion each, and read_*
 * tell of it. All are set, since the inline code of verbs.h calls them unchecked; those of what cannot be asked
 * for at creation return 0.
 */
#include <errno.h>
#include <time.h>
#include "lib.h"

static struct cq *of(struct ibv_cq_ex *cq)
{
	return container_of(cq, struct cq, ex);
}

static int take_completion(struct cq *cq)
{
	int n = poll_cq_at(&cq->cq, 1, &cq->wc, &cq->at);

	if (n < 0)
		return -n;
	if (!n)
		return ENOENT;
	cq->ex.status = cq->wc.status;
	cq->ex.wr_id = cq->wc.wr_id;
	return 0;
}

/* Holds the lock on success, until end_poll. */
static int start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr)
{
	int status;

	if (attr && attr->comp_mask)
		return EINVAL;
	pthread_mutex_lock(&of(cq)->polling);
	status = take_completion(of(cq));
	if (status)
		pthread_mutex_unlock(&of(cq)->polling);
	return status;
}

static int next_poll(struct ibv_cq_ex *cq)
{
	return take_completion(of(cq));
}

static void end_poll(struct ibv_cq_ex *cq)
{
	pthread_mutex_unlock(&of(cq)->polling);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *cq)
{
	return of(cq)->wc.opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *cq)
{
	return of(cq)->wc.vendor_err;
}

static uint32_t read_byte_len(struct ibv_cq_ex *cq)
{
	return of(cq)->wc.byte_len;
}

/* The invalidated R_Key, too: the two share their place. */
static __be32 read_imm_data(struct ibv_cq_ex *cq)
{
	return of(cq)->wc.imm_data;
}

static uint32_t read_qp_num(struct ibv_cq_ex *cq)
{
	return of(cq)->wc.qp_num;
}

static uint32_t read_src_qp(struct ibv_cq_ex *cq)
{
	return of(cq)->wc.src_qp;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *cq)
{
	return of(cq)->wc.wc_flags;
}

static uint32_t read_slid(struct ibv_cq_ex *cq)
{
	return of(cq)->wc.slid;
}

static uint8_t read_sl(struct ibv_cq_ex *cq)
{
	return of(cq)->wc.sl;
}

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *cq)
{
	return of(cq)->wc.dlid_path_bits;
}

static uint64_t read_completion_ts(struct ibv_cq_ex *cq)
{
	return of(cq)->at;
}

static uint64_t system_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

/*
 * The device's time of the completion, moved to the system's clock. A thread that loses its processor between two readings
 * makes the clocks look apart, so of several pairs the one read fastest counts.
 */
static uint64_t read_completion_wallclock_ns(struct ibv_cq_ex *cq)
{
	uint64_t fastest = UINT64_MAX, apart = 0;

	for (int i = 0; i < 5; i++) {
		const uint64_t before = system_ns();
		const uint64_t device = CALL(cq->context, clock);
		const uint64_t took = system_ns() - before;

		if (took < fastest) {
			fastest = took;
			apart = before + took / 2 - device;
		}
	}
	return of(cq)->at + apart;
}

static uint16_t read_no_cvlan(struct ibv_cq_ex *cq)
{
	(void)cq;
	return 0;
}

static uint32_t read_no_flow_tag(struct ibv_cq_ex *cq)
{
	(void)cq;
	return 0;
}

static void read_no_tm_info(struct ibv_cq_ex *cq, struct ibv_wc_tm_info *info)
{
	(void)cq;
	*info = (struct ibv_wc_tm_info){ 0 };
}

void set_poll_functions(struct ibv_cq_ex *cq)
{
	cq->start_poll = start_poll;
	cq->next_poll = next_poll;
	cq->end_poll = end_poll;
	cq->read_opcode = read_opcode;
	cq->read_vendor_err = read_vendor_err;
	cq->read_byte_len = read_byte_len;
	cq->read_imm_data = read_imm_data;
	cq->read_qp_num = read_qp_num;
	cq->read_src_qp = read_src_qp;
	cq->read_wc_flags = read_wc_flags;
	cq->read_slid = read_slid;
	cq->read_sl = read_sl;
	cq->read_dlid_path_bits = read_dlid_path_bits;
	cq->read_completion_ts = read_completion_ts;
	cq->read_completion_wallclock_ns = read_completion_wallclock_ns;
	cq->read_cvlan = read_no_cvlan;
	cq->read_flow_tag = read_no_flow_tag;
	cq->read_tm_info = read_no_tm_info;
}
